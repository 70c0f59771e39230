// What a stage has in addition if a profile delivers (packaging/delivery.cjs). The role also gets the permissions that
// the sinks of the stage's profiles need.
'use strict';

const { METRICS, ONCE_IN_5_MINUTES, SERVICE, alarm, dimensions, late } = require('./alarms.cjs');
const { BY_POSITION, CONTROL, EVENTS, LETTERS, allow, arn, functionRole, named, ref, sub } = require('./roles.cjs');

const NAME = '${self:custom.names.connection_delivery}';
const FUNCTION = 'ConnectionDeliveryLambdaFunction';
const KEYS = { PK: 'HASH', SK: 'RANGE' };

module.exports = {
  // The table has what arrived, how far each sink has come, and which bells are out. It has no event: if it is lost,
  // each sink begins anew.
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
      // A shard has each stream's events in order; with more than one invocation a shard that order would be lost.
      ParallelizationFactor: 1,
      // If the function itself fails at records, the batch is halved until only the bad record is in the way.
      BisectBatchOnFunctionError: true,
      // It notes what arrived; a sink holds it up by 0.3 s at most, the tables may for longer. What it cannot note in a
      // day is reported.
      MaximumRetryAttempts: -1,
      MaximumRecordAgeInSeconds: 86400,
      DestinationConfig: { OnFailure: { Destination: LETTERS } },
    },
  },
  // A bell is due again by itself, but for a call that was killed just after it had ended one. Lambda tries it again
  // after a minute.
  DeliveryCalls: {
    Type: 'AWS::Lambda::EventInvokeConfig',
    Properties: {
      FunctionName: ref(FUNCTION), Qualifier: '$LATEST', MaximumEventAgeInSeconds: 240, MaximumRetryAttempts: 1,
    },
  },
  DeliverySweep: {
    Type: 'AWS::Events::Rule',
    Properties: {
      Description: 'Rings again for each sink whose bell was lost or whose function died, and measures how far ' +
        'they are behind',
      ScheduleExpression: 'rate(1 minute)',
      Targets: [{ Id: 'delivery', Arn: arn(FUNCTION), Input: '{"sweep": true}' }],
    },
  },
  DeliverySweepPermission: {
    Type: 'AWS::Lambda::Permission',
    Properties: {
      Action: 'lambda:InvokeFunction', FunctionName: arn(FUNCTION), Principal: 'events.amazonaws.com',
      SourceArn: arn('DeliverySweep'),
    },
  },
  ConnectionDeliveryRole: functionRole('delivery', [
    // Lambda reads the table's stream by the function's role. A table that was restored under its own name has another
    // stream.
    allow('dynamodb', 'DescribeStream GetRecords GetShardIterator ListStreams', sub('${EventsTable.Arn}/stream/*')),
    // It reads events, and changes none.
    allow('dynamodb', 'BatchGetItem Query', EVENTS),
    allow('dynamodb', 'Query', BY_POSITION),
    // The layout of a stream's events, for a replay.
    allow('dynamodb', 'GetItem', CONTROL),
    allow('dynamodb', 'DeleteItem GetItem PartiQLInsert PutItem Query UpdateItem', arn('DeliveryTable')),
    // By its own name: it answers bells in calls of their own.
    allow('lambda', 'InvokeFunction', named('lambda', `function:${NAME}`)),
    allow('sqs', 'SendMessage', LETTERS),
  ]),
  // A sweep measures this each minute. Without a sweep, the alarm on the function's errors acts, or nothing runs at
  // all.
  DeliveryLagAlarm: alarm(METRICS, 'DeliveryLagMs', SERVICE, late(2, 300000),
    'A sink has not taken an event for five minutes or more. `streamkeeper sinks ID` and the log of ' +
    `${NAME} name the sink and why.`),
  DeliveryErrorsAlarm: alarm('AWS/Lambda', 'Errors', dimensions({ FunctionName: NAME }), ONCE_IN_5_MINUTES,
    'The function that delivers events failed; its log says why. A sink that refuses is no such failure.'),
};
