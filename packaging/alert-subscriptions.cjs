// Resolves ${file(packaging/alert-subscriptions.cjs)}: the subscriptions to alarms, from the stage's `alert_email`.
// There is none if that is empty; the owner of the address has to confirm the mail that SNS sends.
'use strict';

module.exports = async ({ resolveVariable }) => {
  const address = await resolveVariable('self:custom.settings.alert_email');
  return address === '' ? [] : [{ Protocol: 'email', Endpoint: address }];
};
