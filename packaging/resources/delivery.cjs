// What a stage has besides where a profile delivers (packaging/delivery.cjs): a stage without one has nothing of it.
// The role gets, besides, what the sinks of the stage's profiles need.
'use strict';

const { METRICS, ONCE_IN_5_MINUTES, SERVICE, alarm, dimensions, late } = require('./alarms.cjs');
const { BY_POSITION, CONTROL, EVENTS, LETTERS, allow, arn, functionRole, named, ref, sub } = require('./roles.cjs');

const NAME = '${self:custom.names.connection_delivery}';
const FUNCTION = 'ConnectionDeliveryLambdaFunction';
const KEYS = { PK: 'HASH', SK: 'RANGE' };

module.exports = {
  // What arrived, how far each sink has come, and which bells are out. It says nothing that the events do not have: without
  // it each sink begins anew.
  DeliveryTable: {
    Type: 'AWS::DynamoDB::Table',
    Properties: {
      TableName: '${self:custom.names.delivery_table}',
      BillingMode: 'PAY_PER_REQUEST',
      AttributeDefinitions: Object.keys(KEYS).map((AttributeName) => ({ AttributeName, AttributeType: 'S' })),
      KeySchema: Object.entries(KEYS).map(([AttributeName, KeyType]) => ({ AttributeName, KeyType })),
      SSESpecification: { SSEEnabled: true },
      TimeToLiveSpecification: { AttributeName: 'expires_at', Enabled: true },
    },
  },
  DeliveryMapping: {
    Type: 'AWS::Lambda::EventSourceMapping',
    DependsOn: 'ConnectionDeliveryRole',
    Properties: {
      EventSourceArn: { 'Fn::GetAtt': ['EventsTable', 'StreamArn'] },
      FunctionName: arn(FUNCTION),
      StartingPosition: 'TRIM_HORIZON',
      BatchSize: 250,
      // A shard has each stream's events in their order; with more than one invocation a shard they would lose it.
      ParallelizationFactor: 1,
      // Of records at which the function itself fails, one alone is in the way in the end.
      BisectBatchOnFunctionError: true,
      // It notes what arrived: a sink holds it up by 0.3 s at most, else only the tables can. What it cannot note in a day is
      // said.
      MaximumRetryAttempts: -1,
      MaximumRecordAgeInSeconds: 86400,
      DestinationConfig: { OnFailure: { Destination: LETTERS } },
    },
  },
  // A bell is due again by itself: what Lambda tries again besides, it tries within the minute.
  DeliveryCalls: {
    Type: 'AWS::Lambda::EventInvokeConfig',
    Properties: {
      FunctionName: ref(FUNCTION), Qualifier: '$LATEST', MaximumEventAgeInSeconds: 60, MaximumRetryAttempts: 0,
    },
  },
  DeliverySweep: {
    Type: 'AWS::Events::Rule',
    Properties: {
      Description: 'Rings again for each sink whose bell was lost or whose function died, and measures how far they are behind',
      ScheduleExpression: 'rate(1 minute)',
      Targets: [{ Id: 'delivery', Arn: arn(FUNCTION), Input: '{"sweep": true}' }],
    },
  },
  DeliverySweepPermission: {
    Type: 'AWS::Lambda::Permission',
    Properties: {
      Action: 'lambda:InvokeFunction', FunctionName: arn(FUNCTION), Principal: 'events.amazonaws.com', SourceArn: arn('DeliverySweep'),
    },
  },
  ConnectionDeliveryRole: functionRole('delivery', [
    // Lambda reads the stream in the function's role. A table that was restored under its own name has another.
    allow('dynamodb', 'DescribeStream GetRecords GetShardIterator ListStreams', sub('${EventsTable.Arn}/stream/*')),
    // It reads events and changes none.
    allow('dynamodb', 'BatchGetItem Query', EVENTS),
    allow('dynamodb', 'Query', BY_POSITION),
    // How a stream's events lie, for a replay.
    allow('dynamodb', 'GetItem', CONTROL),
    allow('dynamodb', 'DeleteItem GetItem PartiQLInsert PutItem Query UpdateItem', arn('DeliveryTable')),
    // Its own name: it has its bells answered by calls of their own.
    allow('lambda', 'InvokeFunction', named('lambda', `function:${NAME}`)),
    allow('sqs', 'SendMessage', LETTERS),
  ]),
  // A sweep measures it each minute. No sweep, no measure: then the alarm on the function's errors speaks, or nothing runs.
  DeliveryLagAlarm: alarm(METRICS, 'DeliveryLagMs', SERVICE, late(2, 300000),
    'A sink has not taken an event for five minutes or more. `streamkeeper sinks ID` and the log of ' + `${NAME} name the sink and why.`),
  DeliveryErrorsAlarm: alarm('AWS/Lambda', 'Errors', dimensions({ FunctionName: NAME }), ONCE_IN_5_MINUTES,
    'The function that delivers events failed; its log says why. A sink that refuses is no such failure.'),
};
