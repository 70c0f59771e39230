// An osls plugin that gives every role of the template the stage's permissions boundary, without which some accounts
// let nobody create a role. A stage without one gets none.
'use strict';

const plugin = require('./plugin.cjs');

function bind({ service: { custom, resources } }) {
  const { permissions_boundary: PermissionsBoundary } = custom.settings;
  const roles = Object.values(resources.Resources).filter(({ Type }) => Type === 'AWS::IAM::Role');
  for (const role of PermissionsBoundary === '' ? [] : roles) Object.assign(role.Properties, { PermissionsBoundary });
}

module.exports = plugin({ 'before:package:compileFunctions': bind });
