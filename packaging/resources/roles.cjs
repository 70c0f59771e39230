// A role for each function, each machine and the API, with the permissions that it needs and no more.
'use strict';

const sub = (text) => ({ 'Fn::Sub': text });
const arn = (id) => ({ 'Fn::GetAtt': [id, 'Arn'] });
const ref = (id) => ({ Ref: id });
// The ARN by name, for what this template does not make or must not wait for.
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
// The secrets that a profile of this stage may refer to (handlers/profile/secret_references.py).
const SECRETS = [
  allow('secretsmanager', 'GetSecretValue', named('secretsmanager', 'secret:${self:custom.names.secrets}*')),
  allow('ssm', 'GetParameter', named('ssm', 'parameter${self:custom.names.secrets}*')),
];
// To have gaps repaired.
const HAS_REPAIRED = allow('lambda', 'InvokeFunction', REPAIR);

// What each function may do, in addition to writing its log.
const FUNCTIONS = {
  manager: [
    // To read back the item of a known key (handlers/store/conflicts.py).
    allow('dynamodb', 'BatchGetItem GetItem PartiQLInsert PutItem Query', EVENTS),
    // For the records of a group's streams, in batches (handlers/run/group_invocation.py).
    allow('dynamodb', 'BatchGetItem GetItem PutItem Query UpdateItem', CONTROL),
    allow('sqs', 'SendMessage', LETTERS),
    allow('s3', 'GetObject PutObject', BODIES),
    ...SECRETS,
    // By its own name: to ask for a profile that was deployed since it began (handlers/run/deployed_profiles.py).
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
    allow('states', 'DescribeExecution DescribeStateMachineForExecution GetExecutionHistory',
      executions('connections')),
    // An execution applies a document about the fleet, one at a time.
    allow('states', 'StartExecution', ref('Fleet')),
    allow('states', 'DescribeExecution', executions('fleet')),
    // To list dead-letter messages, which are released at once, and to put their events back.
    allow('sqs', 'ChangeMessageVisibility DeleteMessage ReceiveMessage', LETTERS),
    HAS_REPAIRED,
  ],
  watch: [
    allow('dynamodb', 'Query', BY_RECORD),
    // To write the end of a stopped stream whose execution is over.
    allow('dynamodb', 'BatchGetItem GetItem UpdateItem', CONTROL),
    // To ask whether the execution that a lease names is over, and to start another in its place.
    allow('states', 'DescribeExecution', executions('connections')),
    allow('states', 'StartExecution', ref('Connections')),
    // To send messages about streams, and to keep CloudWatch's count of the queue from being late.
    allow('sns', 'Publish', ref('AlertsTopic')),
    allow('sqs', 'GetQueueAttributes', LETTERS),
    HAS_REPAIRED,
  ],
  upgrade: [
    allow('dynamodb', 'Query', BY_RECORD),
    allow('dynamodb', 'BatchGetItem GetItem PutItem Query UpdateItem', CONTROL),
    // To read when the newest stored event came.
    allow('dynamodb', 'Query', [EVENTS, BY_POSITION]),
    // To make a version of what is deployed, and to call it once before any stream does.
    allow('lambda', 'PublishVersion', MANAGER),
    allow('lambda', 'InvokeFunction', versions('ConnectionManagerLambdaFunction.Arn')),
    // AWS judges both on the function, not on the alias.
    allow('lambda', 'GetAlias UpdateAlias', MANAGER),
    // By a version, or by what is deployed if there is no version yet.
    allow('states', 'StartExecution', [ref('Connections'), versions('Connections')]),
    // An upgrade that goes back deploys the former version's definition.
    allow('states', 'DescribeStateMachine', [ref('Connections'), versions('Connections')]),
    allow('states', 'ListStateMachineVersions PublishStateMachineVersion UpdateStateMachine', ref('Connections')),
    // Versions that nothing has been started by for long.
    allow('states', 'DeleteStateMachineVersion', [ref('Connections'), versions('Connections')]),
    // The machine keeps its role. AWS lists this as dependent of UpdateStateMachine (service authorization reference).
    allow('iam', 'PassRole', arn('ConnectionsRole'),
      { StringEquals: { 'iam:PassedToService': 'states.amazonaws.com' } }),
    // To read the definition of an execution that is in no wave.
    allow('states', 'DescribeStateMachineForExecution', executions('connections')),
    // To know whether another upgrade runs.
    allow('states', 'DescribeExecution', executions('upgrade')),
  ],
  fleet: [
    // To read which streams there are, and their status.
    allow('dynamodb', 'Query', BY_RECORD),
    // For the document, how far it is applied, and stop requests.
    allow('dynamodb', 'BatchGetItem GetItem Query UpdateItem', CONTROL),
    // To start a stream as a POST does.
    allow('states', 'StartSyncExecution', ref('Start')),
  ],
  repair: [
    // To read the events at the edges of a gap, and those that are stored already.
    allow('dynamodb', 'BatchGetItem GetItem PartiQLInsert PutItem Query', EVENTS),
    allow('dynamodb', 'Query', [BY_POSITION, BY_RECORD]),
    // For requests, turns, and the repairs in the records of gaps.
    allow('dynamodb', 'BatchGetItem GetItem Query UpdateItem', CONTROL),
    allow('sqs', 'SendMessage', LETTERS),
    allow('s3', 'GetObject PutObject', BODIES),
    ...SECRETS,
  ],
};
const MACHINES = {
  connections: [
    // By the alias, or by a version.
    allow('lambda', 'InvokeFunction', versions('ConnectionManagerLambdaFunction.Arn')),
    allow('dynamodb', 'GetItem UpdateItem', CONTROL),
    // To ask whether the machine's execution that holds a stream still runs.
    allow('states', 'DescribeExecution', executions('connections')),
    // For a renewal: an execution starts its successor. This is not Ref Connections, because the machine itself waits
    // for this role. AWS does not document whether an execution that a version started has that version in its context
    // object.
    allow('states', 'StartExecution', [MACHINE, named('states', 'stateMachine:${self:custom.names.connections}:*')]),
    allow('sqs', 'SendMessage', LETTERS),
  ],
  start: [
    // To read, and to write for a stream that joins a group.
    allow('dynamodb', 'GetItem PutItem UpdateItem', CONTROL),
    // To ask whether the execution that holds a stream, or that another POST has started, still runs.
    allow('states', 'DescribeExecution', executions('connections')),
    allow('states', 'StartExecution', MACHINE),
    // Each part of a stream is started by an execution of the machine itself.
    allow('states', 'StartSyncExecution', named('states', 'stateMachine:${self:custom.names.start}')),
  ],
  upgrade: [
    allow('lambda', 'InvokeFunction', arn('ConnectionUpgradeLambdaFunction')),
    allow('sns', 'Publish', ref('AlertsTopic')),
  ],
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

// Adds the permission to write the function's log.
function functionRole(name, statements) {
  const log = named('logs', `log-group:/aws/lambda/\${self:custom.names.connection_${name}}:*`);
  return role('lambda', `connection-${name}`, [...statements, allow('logs', 'CreateLogStream PutLogEvents', log)]);
}

const capital = (name) => name[0].toUpperCase() + name.slice(1);
const Resources = { ApiRole: role('apigateway', 'start', [allow('states', 'StartSyncExecution', ref('Start'))]) };
for (const [name, statements] of Object.entries(FUNCTIONS)) {
  Resources[`Connection${capital(name)}Role`] = functionRole(name, statements);
}
for (const [name, statements] of Object.entries(MACHINES)) {
  Resources[`${capital(name)}Role`] = role('states', name, statements);
}

module.exports = { BY_POSITION, CONTROL, EVENTS, LETTERS, Resources, allow, arn, functionRole, named, ref, sub };
