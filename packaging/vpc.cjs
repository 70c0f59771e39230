// An osls plugin that puts the functions which connect to upstreams and sinks into the stage's VPC: the connection
// manager, the repair and, if there is one, the delivery. It gives their roles the permissions that Lambda needs for
// that. A stage without subnets gets none of this. docs/deploy.md#a-vpc names the endpoints that such functions need.
'use strict';

const plugin = require('./plugin.cjs');
const { allow } = require('./resources/roles.cjs');

const FUNCTIONS = ['connectionManager', 'connectionRepair', 'connectionDelivery'];
// AWS Lambda Developer Guide, "Giving Lambda functions access to resources in an Amazon VPC": the actions of
// AWSLambdaVPCAccessExecutionRole for network interfaces, none of which takes a resource.
const STATEMENT = allow(
  'ec2',
  'AssignPrivateIpAddresses CreateNetworkInterface DeleteNetworkInterface DescribeNetworkInterfaces ' +
    'DescribeSubnets UnassignPrivateIpAddresses',
  '*',
);

const listed = (text) => text.split(',').filter((id) => id !== '');

// The functions' `vpc` from the settings; undefined if the stage has none.
function vpcOf({ vpc_subnet_ids: subnets, vpc_security_group_ids: groups }) {
  if (subnets === '' && groups === '') return undefined;
  if (subnets === '' || groups === '') {
    throw new Error('vpc_subnet_ids and vpc_security_group_ids belong together: set both, or neither.');
  }
  return { subnetIds: listed(subnets), securityGroupIds: listed(groups) };
}

function place({ service: { custom, functions, resources } }) {
  const vpc = vpcOf(custom.settings);
  if (vpc === undefined) return;
  for (const one of FUNCTIONS.map((name) => functions[name]).filter((found) => found !== undefined)) {
    one.vpc = vpc;
    resources.Resources[one.role].Properties.Policies[0].PolicyDocument.Statement.push(STATEMENT);
  }
}

module.exports = plugin({ 'before:package:compileFunctions': place });
module.exports.vpcOf = vpcOf;
