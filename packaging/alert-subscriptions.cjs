// What osls makes of ${file(packaging/alert-subscriptions.cjs)}: who gets the alarms, from the stage's `alert_email`.
// Nobody where it is empty; an address has to confirm the mail that SNS sends to it.
'use strict';

module.exports = async ({ resolveVariable }) => {
  const address = await resolveVariable('self:custom.settings.alert_email');
  return address === '' ? [] : [{ Protocol: 'email', Endpoint: address }];
};
