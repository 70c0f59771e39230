// A role for each function, each machine and the API, with the permissions that it needs and no more.
'use strict';

const sub = (text) => ({ 'Fn::Sub': text });
const arn = (id) => ({ 'Fn::GetAtt': [id, 'Arn'] });
const ref = (id) => ({ Ref: id });
// What this template does not make, or must not wait for: by its name.
const named = (service, name) => sub(`arn:\${AWS::Partition}:${service}:\${AWS::Region}:\${AWS::AccountId}:${name}`);
const executions = (machine) => named('states', `execution:\${self:custom.names.${machine}}:*`);
const versions = (id) => sub(`\${${id}}:*`);

const [EVENTS, CONTROL, LETTERS] = ['EventsTable', 'ControlTable', 'DeadLetterQueue'].map(arn);
const BY_POSITION = sub('${EventsTable.Arn}/index/by-position');
const BY_RECORD = sub('${ControlTable.Arn}/index/by-record');
const BODIES = sub('${EventsBucket.Arn}/*');
const [MANAGER, REPAIR] = ['ConnectionManagerLambdaFunction', 'ConnectionRepairLambdaFunction'].map(arn);
const MACHINE = named('states', 'stateMachine:${self:custom.names.connections}');

const alone = (several) => (several.length === 1 ? several[0] : several);
const allow = (service, names, resources, Condition) => {
  const Action = alone(names.split(' ').map((name) => `${service}:${name}`));
  return { Effect: 'Allow', Action, Resource: resources, ...(Condition && { Condition }) };
};
// What a profile of this stage may refer to (handlers/profile/secret_references.py).
const SECRETS = [
  allow('secretsmanager', 'GetSecretValue', named('secretsmanager', 'secret:${self:custom.names.secrets}*')),
  allow('ssm', 'GetParameter', named('ssm', 'parameter${self:custom.names.secrets}*')),
];
// To have gaps repaired.
const HAS_REPAIRED = allow('lambda', 'InvokeFunction', REPAIR);

// What each function may do, besides to write its log.
const FUNCTIONS = {
  manager: [
    // What lies under a known key is read back (handlers/store/conflicts.py).
    allow('dynamodb', 'BatchGetItem GetItem PartiQLInsert PutItem Query', EVENTS),
    // In batches the records of a group's streams (handlers/run/group_invocation.py).
    allow('dynamodb', 'BatchGetItem GetItem PutItem Query UpdateItem', CONTROL),
    allow('sqs', 'SendMessage', LETTERS),
    allow('s3', 'GetObject PutObject', BODIES),
    ...SECRETS,
    // Its own name: to be told a profile that was deployed since it began (handlers/run/deployed_profiles.py).
    allow('lambda', 'InvokeFunction', named('lambda', 'function:${self:custom.names.connection_manager}:*')),
    HAS_REPAIRED,
  ],
  control: [
    allow('dynamodb', 'BatchGetItem GetItem Query UpdateItem', CONTROL),
    allow('dynamodb', 'Query', BY_RECORD),
    allow('dynamodb', 'BatchGetItem GetItem PutItem Query', EVENTS),
    allow('dynamodb', 'Query', BY_POSITION),
    allow('s3', 'GetObject PutObject', BODIES),
    // For the graph of the machine with its current states.
    allow('states', 'DescribeExecution DescribeStateMachineForExecution GetExecutionHistory', executions('connections')),
    // A document about the fleet is applied by an execution, one at a time.
    allow('states', 'StartExecution', ref('Fleet')),
    allow('states', 'DescribeExecution', executions('fleet')),
    // To list dead-letter messages, which are given back at once, and to put back what they hold.
    allow('sqs', 'ChangeMessageVisibility DeleteMessage ReceiveMessage', LETTERS),
    HAS_REPAIRED,
  ],
  watch: [
    allow('dynamodb', 'Query', BY_RECORD),
    allow('dynamodb', 'BatchGetItem GetItem', CONTROL),
    // To ask whether the execution that a lease names is over, and to start another in its place.
    allow('states', 'DescribeExecution', executions('connections')),
    allow('states', 'StartExecution', ref('Connections')),
    // To name the streams that are not connected, and so that CloudWatch counts the queue without delay.
    allow('sns', 'Publish', ref('AlertsTopic')),
    allow('sqs', 'GetQueueAttributes', LETTERS),
    HAS_REPAIRED,
  ],
  upgrade: [
    allow('dynamodb', 'Query', BY_RECORD),
    allow('dynamodb', 'BatchGetItem GetItem PutItem Query UpdateItem', CONTROL),
    // When the newest event came that is stored.
    allow('dynamodb', 'Query', [EVENTS, BY_POSITION]),
    // What is deployed becomes a version, which is called once before a stream is.
    allow('lambda', 'PublishVersion', MANAGER),
    allow('lambda', 'InvokeFunction', versions('ConnectionManagerLambdaFunction.Arn')),
    // AWS judges both on the function, not on the alias.
    allow('lambda', 'GetAlias UpdateAlias', MANAGER),
    // By a version, or what is deployed where there is none yet.
    allow('states', 'StartExecution', [ref('Connections'), versions('Connections')]),
    // An upgrade that goes back deploys the definition of the version before.
    allow('states', 'DescribeStateMachine', [ref('Connections'), versions('Connections')]),
    allow('states', 'PublishStateMachineVersion UpdateStateMachine', ref('Connections')),
    // The machine keeps its role. AWS lists this as dependent of UpdateStateMachine (service authorization reference).
    allow('iam', 'PassRole', arn('ConnectionsRole'), { StringEquals: { 'iam:PassedToService': 'states.amazonaws.com' } }),
    // Which definition an execution has that is in no wave.
    allow('states', 'DescribeStateMachineForExecution', executions('connections')),
    // Whether another upgrade runs.
    allow('states', 'DescribeExecution', executions('upgrade')),
  ],
  fleet: [
    // Which streams there are, and how they stand.
    allow('dynamodb', 'Query', BY_RECORD),
    // The document and how far it is; a stop request.
    allow('dynamodb', 'BatchGetItem GetItem Query UpdateItem', CONTROL),
    // A stream is started as by a POST.
    allow('states', 'StartSyncExecution', ref('Start')),
  ],
  repair: [
    // The events at the edges of a gap, and those that are stored.
    allow('dynamodb', 'BatchGetItem GetItem PartiQLInsert PutItem Query', EVENTS),
    allow('dynamodb', 'Query', [BY_POSITION, BY_RECORD]),
    // Requests, turns, and what the records of gaps say of their repair.
    allow('dynamodb', 'BatchGetItem GetItem Query UpdateItem', CONTROL),
    allow('sqs', 'SendMessage', LETTERS),
    allow('s3', 'GetObject PutObject', BODIES),
    ...SECRETS,
  ],
};
const MACHINES = {
  connections: [
    // By the alias or a version.
    allow('lambda', 'InvokeFunction', versions('ConnectionManagerLambdaFunction.Arn')),
    allow('dynamodb', 'GetItem UpdateItem', CONTROL),
    // Of the machine's own executions: to ask whether the one that holds a stream still runs.
    allow('states', 'DescribeExecution', executions('connections')),
    // Renewal: an execution starts its successor. Not Ref Connections: the machine itself waits for this role. AWS does
    // not say whether an execution that was started by a version has that in its context object.
    allow('states', 'StartExecution', [MACHINE, named('states', 'stateMachine:${self:custom.names.connections}:*')]),
    allow('sqs', 'SendMessage', LETTERS),
  ],
  start: [
    // What is read, and what is written for a stream that joins a group.
    allow('dynamodb', 'GetItem PutItem UpdateItem', CONTROL),
    // Whether the execution that holds a stream, or that another POST has started, still runs.
    allow('states', 'DescribeExecution', executions('connections')),
    allow('states', 'StartExecution', MACHINE),
    // Each part of a stream is started by an execution of the machine itself.
    allow('states', 'StartSyncExecution', named('states', 'stateMachine:${self:custom.names.start}')),
  ],
  upgrade: [allow('lambda', 'InvokeFunction', arn('ConnectionUpgradeLambdaFunction')), allow('sns', 'Publish', ref('AlertsTopic'))],
  fleet: [allow('lambda', 'InvokeFunction', arn('ConnectionFleetLambdaFunction'))],
};

function role(service, PolicyName, Statement) {
  const Version = '2012-10-17';
  const trusts = { Effect: 'Allow', Principal: { Service: `${service}.amazonaws.com` }, Action: 'sts:AssumeRole' };
  return {
    Type: 'AWS::IAM::Role',
    Properties: {
      AssumeRolePolicyDocument: { Version, Statement: [trusts] },
      Policies: [{ PolicyName, PolicyDocument: { Version, Statement } }],
    },
  };
}

// With the log that a function writes.
function functionRole(name, statements) {
  const log = named('logs', `log-group:/aws/lambda/\${self:custom.names.connection_${name}}:*`);
  return role('lambda', `connection-${name}`, [...statements, allow('logs', 'CreateLogStream PutLogEvents', log)]);
}

const capital = (name) => name[0].toUpperCase() + name.slice(1);
const Resources = { ApiRole: role('apigateway', 'start', [allow('states', 'StartSyncExecution', ref('Start'))]) };
for (const [name, statements] of Object.entries(FUNCTIONS)) Resources[`Connection${capital(name)}Role`] = functionRole(name, statements);
for (const [name, statements] of Object.entries(MACHINES)) Resources[`${capital(name)}Role`] = role('states', name, statements);

module.exports = { BY_POSITION, CONTROL, EVENTS, LETTERS, Resources, allow, arn, functionRole, named, ref, sub };
