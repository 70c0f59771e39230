// The alarms, all on the stage's topic; docs/runbook.md has a section for each. No resource belongs to a single stream,
// so any number of streams is watched. An alarm acts only when it begins, so each counts what is new and ends soon: one
// that lasted while a message is in the queue would not report the next message.
'use strict';

const METRICS = '${self:custom.names.metrics}';
const alerts = [{ Ref: 'AlertsTopic' }];
const dimensions = (values) => Object.entries(values).map(([Name, Value]) => ({ Name, Value }));
const machine = (id) => dimensions({ StateMachineArn: { Ref: id } });
const lambda = (id) => dimensions({ FunctionName: { Ref: `${id}LambdaFunction` } });
const SERVICE = dimensions({ service: '${self:service}' });
const QUEUE = dimensions({ QueueName: { 'Fn::GetAtt': ['DeadLetterQueue', 'QueueName'] } });
const API = dimensions({ ApiName: '${sls:stage}-${self:service}', Stage: '${sls:stage}' });

const ABOVE_NONE = { Threshold: 0, ComparisonOperator: 'GreaterThanThreshold', TreatMissingData: 'notBreaching' };
const AT_LEAST = { ComparisonOperator: 'GreaterThanOrEqualToThreshold' };
const ONCE_IN_5_MINUTES = { Statistic: 'Sum', Period: 300, EvaluationPeriods: 1, ...ABOVE_NONE };
// Over three minutes, because counts may come late; three minutes later it can act again.
const SOON = { Statistic: 'Sum', Period: 60, EvaluationPeriods: 3, DatapointsToAlarm: 1, ...ABOVE_NONE };
// For numbers that are reported every minute, zero included: a missing number is a problem too.
const late = (EvaluationPeriods, Threshold) => ({
  Statistic: 'Maximum', Period: 60, EvaluationPeriods, Threshold, ...AT_LEAST,
  TreatMissingData: 'breaching', OKActions: alerts,
});

function alarm(Namespace, MetricName, Dimensions, when, AlarmDescription) {
  const named = { AlarmDescription, Namespace, MetricName, ...(Dimensions && { Dimensions }) };
  return { Type: 'AWS::CloudWatch::Alarm', Properties: { ...named, ...when, AlarmActions: alerts } };
}

// What counts entries of the connection manager's log into a metric.
function filter(MetricNamespace, MetricName, FilterPattern, MetricValue = '1') {
  const MetricTransformations = [{ MetricNamespace, MetricName, MetricValue }];
  const LogGroupName = { Ref: 'ConnectionManagerLogGroup' };
  return { Type: 'AWS::Logs::MetricFilter', Properties: { LogGroupName, FilterPattern, MetricTransformations } };
}

// Each alarm by its name: namespace, metric, dimensions, when it acts, and the words of the message.
const ALARMS = {
  Unconnected: [METRICS, 'LongestUnconnected', SERVICE, late(3, '${self:custom.settings.unconnected_after_s}'),
    'A stream that should be connected has not been for ${self:custom.settings.unconnected_after_s} s, or the ' +
    'function that watches is silent. Another message, and the log of ${self:custom.names.connection_watch}, name ' +
    'each stream; GET /connections/{streamId} shows more.'],
  Orphaned: [METRICS, 'Orphaned', SERVICE, { Statistic: 'Maximum', Period: 60, EvaluationPeriods: 1, ...ABOVE_NONE },
    'The lease of a stream named an execution that is over, though no stop was requested. The log of ' +
    '${self:custom.names.connection_watch} names the stream, and the execution that was started for it if one may ' +
    'be. Somebody aborted an execution, or set the table back.'],
  ExecutionFailed: ['AWS/States', 'ExecutionsFailed', machine('Connections'), ONCE_IN_5_MINUTES,
    'An execution ended as Broken, so a stream is no longer kept connected. Its error and cause say why.'],
  ExecutionTimedOut: ['AWS/States', 'ExecutionsTimedOut', machine('Connections'), ONCE_IN_5_MINUTES,
    'Step Functions ended an execution at its limit of a year, although renewals should end it long before.'],
  Rejections: [METRICS, 'Rejections', null, SOON,
    'The upstream rejected a stream, or its profile is wrong. It is not tried again. The log of ' +
    '${self:custom.names.connection_manager} and a dead-letter message name it; `streamkeeper redrive --restart` ' +
    'starts it again.'],
  DeadLetters: ['AWS/SQS', 'NumberOfMessagesSent', QUEUE, SOON,
    'New dead-letter messages - events that could not be stored, streams that were rejected or could not be ' +
    'claimed, each with its reason. `streamkeeper redrive --dry-run` lists them.'],
  ForgottenDeadLetters: ['AWS/SQS', 'ApproximateNumberOfMessagesVisible', QUEUE,
    { ...ONCE_IN_5_MINUTES, Statistic: 'Maximum', Period: 86400, EvaluationPeriods: 7 },
    'The dead-letter queue has had messages on each of the last seven days. After fourteen days a message is deleted.'],
  StartFailed: ['AWS/States', 'ExecutionsFailed', machine('Start'), SOON,
    'A POST failed - the Express execution of ${self:custom.names.start} that answers it did. The stream may not ' +
    'have been started.'],
  StartTimedOut: ['AWS/States', 'ExecutionsTimedOut', machine('Start'), SOON,
    'A POST had no answer in 28 s - Step Functions or DynamoDB is slow. The stream may not have been started.'],
  ApiErrors: ['AWS/ApiGateway', '5XXError', API, SOON,
    'The HTTP API answered with 5XX, or a request reached no machine and no function.'],
  // The API's metrics do not count 429 apart. Hundreds of refusals mean that there are too many requests.
  ApiRefusals: ['AWS/ApiGateway', '4XXError', API, { ...ONCE_IN_5_MINUTES, ...AT_LEAST, Threshold: 100 },
    'The HTTP API refused a hundred requests within five minutes - mostly with 429, because they exceed ' +
    "api_requests_per_s or the account's quota."],
  UpgradeFailed: ['AWS/States', 'ExecutionsFailed', machine('Upgrade'), SOON,
    'An upgrade of the streams failed or died. Its streams may run two versions.'],
  UpgradeAborted: ['AWS/States', 'ExecutionsAborted', machine('Upgrade'), SOON,
    'Somebody aborted an upgrade of the streams in Step Functions, so it did not go back. Its streams may run two ' +
    'versions.'],
  FleetFailed: ['AWS/States', 'ExecutionsFailed', machine('Fleet'), SOON,
    'The execution that applies a fleet document died. Streams that it had not reached are unchanged.'],
  FleetAborted: ['AWS/States', 'ExecutionsAborted', machine('Fleet'), SOON,
    'Somebody aborted the execution that applies a fleet document. Streams that it had not reached are unchanged.'],
  Throttles: ['AWS/Lambda', 'Throttles', lambda('ConnectionManager'), ONCE_IN_5_MINUTES,
    "Lambda refuses to start connections - the account's concurrency, or connection_concurrency, is used up. " +
    'Streams may be without a connection.'],
  ControlErrors: ['AWS/Lambda', 'Errors', lambda('ConnectionControl'), ONCE_IN_5_MINUTES,
    'The function that shows and stops streams failed. Every expected error has a response, so this is a defect.'],
  RepairErrors: ['AWS/Lambda', 'Errors', lambda('ConnectionRepair'), { ...ONCE_IN_5_MINUTES, Threshold: 2 },
    'The function that repairs gaps fails again and again, so gaps stay open that could be repaired. Its log has ' +
    'the error.'],
  UnexpectedErrors: [METRICS, 'UnexpectedErrors', null, ONCE_IN_5_MINUTES,
    'The connection manager raised an error that handlers/errors.py does not have, which is a defect; its log has ' +
    'the traceback.'],
  Kills: [METRICS, 'Kills', null, { ...ONCE_IN_5_MINUTES, Period: 3600, Threshold: 2 },
    'Connection managers are killed, at their limit or for memory. Normally each leaves before its limit.'],
  Stuck: [METRICS, 'StuckAtCursor', null, ONCE_IN_5_MINUTES,
    'A stream is stuck at its cursor - several connections in a row ended there in the same way. The log of the ' +
    'connection manager names it.'],
  StoreRefusals: [METRICS, 'StoreRefusals', null, { ...ONCE_IN_5_MINUTES, Threshold: 2 },
    "DynamoDB or the dead-letter queue refuses what connections write, again and again after the client's own " +
    "retries."],
  Missing: [METRICS, 'MissingGaps', null, ONCE_IN_5_MINUTES,
    'Events of a stream are missing, or may be - its upstream announced a loss, or those of the time when it was ' +
    'away could not all be requested.'],
};

// What is counted from the log of the connection manager into a metric, by the filter's name: the runtime writes
// "[ERROR] <class>: ..." for what a function raises. A connection ends by raising an error, so Lambda's own count of
// errors is never 0. A connection in a group ends without one, because its function goes on: what counts is the
// outcome in its document, which alone names the group (handlers/run/connection_metrics.py), as does the log line of a
// stream that had no connection because its profile is wrong.
const EXPECTED = [
  'StreamTakenOver', 'StreamDropped', 'StreamThrottled', 'ConnectionExpired', 'RenewalDue', 'StreamRejected',
  'StoreUnavailable', 'InvalidRequest', 'StreamBroken',
];
const inGroup = (...outcomes) =>
  `{ $.group = "#*" && (${outcomes.map((one) => `$.outcome = "${one}"`).join(' || ')}) }`;
const FILTERS = {
  // Streams that were rejected, and requests for a stream whose profile is missing or wrong.
  Rejections: ['Rejections', '?"[ERROR] StreamRejected" ?"[ERROR] InvalidRequest"'],
  GroupRejections: ['Rejections', inGroup('StreamRejected', 'InvalidRequest')],
  UnexpectedErrors: ['UnexpectedErrors', ['"[ERROR]"', ...EXPECTED.map((name) => `-"[ERROR] ${name}"`)].join(' ')],
  GroupErrors: ['UnexpectedErrors', inGroup('Broken')],
  // Once for each kill: REPORT, the next entry, may name Runtime.ExitError or Runtime.OutOfMemory again.
  Kills: ['Kills', '?"Task timed out" ?"Runtime exited"'],
  Stuck: ['StuckAtCursor', '"stuck at its cursor"'],
  StoreRefusals: ['StoreRefusals', '"[ERROR] StoreUnavailable"'],
  GroupStoreRefusals: ['StoreRefusals', inGroup('StoreUnavailable')],
  Missing: ['MissingGaps', '{ $.Missing > 0 }', '$.Missing'],
};

const Resources = {
  AlertsTopic: {
    Type: 'AWS::SNS::Topic',
    Properties: {
      TopicName: '${self:custom.names.alerts}',
      DisplayName: 'Streamkeeper ${sls:stage}',
      Subscription: '${file(packaging/alert-subscriptions.cjs)}',
    },
  },
};
for (const [name, row] of Object.entries(ALARMS)) Resources[`${name}Alarm`] = alarm(...row);
for (const [name, row] of Object.entries(FILTERS)) Resources[`${name}Filter`] = filter(METRICS, ...row);

// The alarms for the dashboard (dashboard.yml).
const shown = Object.keys(ALARMS).map((name) => `"\${${name}Alarm.Arn}"`).join(', ');

module.exports = { METRICS, ONCE_IN_5_MINUTES, Resources, SERVICE, alarm, dimensions, filter, late, shown };
