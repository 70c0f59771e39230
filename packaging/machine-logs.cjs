// An osls plugin that makes Step Functions log the machines if the stage's `machine_log_level` is not OFF: each gets a
// log group, and its role the permissions. A log holds the names of states and errors, but no input or output.
'use strict';

const plugin = require('./plugin.cjs');
const { allow } = require('./resources/roles.cjs');

// The machines' roles. AWS allows these actions only on all resources.
const ROLES = { Connections: 'ConnectionsRole', Start: 'StartRole', Upgrade: 'UpgradeRole', Fleet: 'FleetRole' };
const DELIVERY = allow(
  'logs',
  'CreateLogDelivery DeleteLogDelivery DescribeLogGroups DescribeResourcePolicies GetLogDelivery ListLogDeliveries ' +
    'PutResourcePolicy UpdateLogDelivery',
  '*',
);

module.exports = plugin({ 'after:aws:package:finalize:mergeCustomProviderResources': add });

function add({ service: { provider, custom } }) {
  const resources = provider.compiledCloudFormationTemplate.Resources;
  const { machine_log_level: level, log_retention_days: days } = custom.settings;
  if (level === 'OFF') return;
  for (const [id, role] of Object.entries(ROLES)) {
    const machine = resources[id];
    const log = `${id}Log`;
    // Names under this prefix need no resource policy of their own; an account may have only ten.
    const name = `/aws/vendedlogs/states/${machine.Properties.StateMachineName}`;
    resources[log] = { Type: 'AWS::Logs::LogGroup', Properties: { LogGroupName: name, RetentionInDays: days } };
    machine.Properties.LoggingConfiguration = {
      Level: level,
      IncludeExecutionData: false,
      Destinations: [{ CloudWatchLogsLogGroup: { LogGroupArn: { 'Fn::GetAtt': [log, 'Arn'] } } }],
    };
    resources[role].Properties.Policies[0].PolicyDocument.Statement.push(structuredClone(DELIVERY));
  }
}
