// Resolves ${file(packaging/alert-subscriptions.cjs)}: the subscriptions to alarms, from the stage's `alert_email`.
// There is none where it is empty; an address has to confirm the mail that SNS sends to it.
'use strict';

module.exports = async ({ resolveVariable }) => {
  const address = await resolveVariable('self:custom.settings.alert_email');
  return address === '' ? [] : [{ Protocol: 'email', Endpoint: address }];
};
