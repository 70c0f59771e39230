// An osls plugin that sends events on where a profile that ships says `deliver`: it gives the events table a stream, and
// the stage a function that is called with it, with its role, its alarms and what the sinks need. A stage without such a
// profile gets nothing of it. handlers/profile/deliver_field.py says what a profile may say, and checks it.
'use strict';

const { choose, table } = require('./shipped-profiles.cjs');

const FUNCTION = 'connectionDelivery';
const HERE = 'arn:${AWS::Partition}:SERVICE:${AWS::Region}:${AWS::AccountId}:';

// What a role needs to send to a sink of each kind: [actions, ARN of the target by its name].
const SINKS = {
  sqs: (name) => [['sqs:GetQueueAttributes', 'sqs:GetQueueUrl', 'sqs:SendMessage'], arn('sqs', name)],
  eventbridge: (name) => [['events:PutEvents'], arn('events', `event-bus/${name}`)],
  kinesis: (name) => [['kinesis:PutRecords'], arn('kinesis', `stream/${name}`)],
  firehose: (name) => [['firehose:PutRecordBatch'], arn('firehose', `deliverystream/${name}`)],
  s3: (name, { prefix = '' }) => [['s3:PutObject'], `arn:\${AWS::Partition}:s3:::${name}/${prefix}*`],
  lambda: (name) => [['lambda:InvokeFunction'], arn('lambda', `function:${name}`)],
};
const SECRET = /\$\{(secret|ssm):([^:}]+)/;

function arn(service, resource) {
  return HERE.replace('SERVICE', service) + resource;
}

// The sinks that a profile names, as tables; what is not a table was refused by the profile's own check.
function sinksOf(profile) {
  const { deliver = [] } = profile;
  return [deliver].flat().filter((sink) => sink !== null && typeof sink === 'object');
}

// {names: of the profiles that deliver, sinks: theirs} of those that ship.
function delivering(stage, upstreams) {
  const found = choose(stage, upstreams).shipped.map((name) => [name, sinksOf(table(name, stage))]);
  const some = found.filter(([, sinks]) => sinks.length > 0);
  return { names: some.map(([name]) => name), sinks: some.flatMap(([, sinks]) => sinks) };
}

// The statements for these sinks, each once; `secrets` begins the names of the stage's secrets.
function statements(sinks, secrets) {
  const all = sinks.flatMap((sink) => {
    const kind = Object.keys(SINKS).find((name) => typeof sink[name] === 'string');
    if (kind !== undefined) return [SINKS[kind](sink[kind], sink)];
    const [, kept, name] = SECRET.exec(sink.secret ?? '') ?? [];
    if (kept === undefined) return [];
    const whole = name.startsWith('/') ? name : `${secrets}${name}`;
    return kept === 'ssm'
      ? [[['ssm:GetParameter'], arn('ssm', `parameter${whole}`)]]
      : // Secrets Manager adds six characters to a name.
        [[['secretsmanager:GetSecretValue'], arn('secretsmanager', `secret:${whole}-??????`)]];
  });
  const texts = all.map(([Action, resource]) => JSON.stringify({ Effect: 'Allow', Action, Resource: { 'Fn::Sub': resource } }));
  return [...new Set(texts)].sort().map((text) => JSON.parse(text));
}

// Which records call the function: events of these profiles' streams that are written, and none that time removes.
// Source: AWS Lambda Developer Guide, "Filter rule syntax".
function filter(names) {
  const keys = names.flatMap((name) => [name, { prefix: `${name}:` }, { prefix: `${name}#` }]);
  return { eventName: ['INSERT', 'MODIFY'], dynamodb: { Keys: { PK: { S: keys } } } };
}

// Puts the delivery onto the dashboard: its alarms, and a row for each stream and sink.
function show(sub, keys) {
  const [text, variables] = sub;
  const board = JSON.parse(text);
  const alarms = board.widgets.find(({ type }) => type === 'alarm').properties.alarms;
  alarms.push(...keys.filter((key) => key.endsWith('Alarm')).map((key) => `\${${key}.Arn}`));
  const query =
    "SOURCE '${DeliveryLog}' | filter ispresent(Delivered) | stats sum(Delivered) as delivered, sum(DeliveryFailed) as failed, " +
    'sum(DeliveryDeadLettered) as dead_lettered, max(DeliveryLagMs) as lag_ms by stream, sink';
  const y = Math.max(...board.widgets.map((widget) => widget.y + widget.height));
  const properties = { title: 'Delivery, by stream and sink', region: '${AWS::Region}', view: 'table', query };
  board.widgets.push({ type: 'log', x: 0, y, width: 24, height: 6, properties });
  sub[0] = JSON.stringify(board);
  variables.DeliveryLog = { Ref: 'ConnectionDeliveryLogGroup' };
}

class Delivery {
  constructor(serverless) {
    this.serverless = serverless;
    this.hooks = { 'before:package:cleanup': () => this.add() };
  }

  add() {
    const { custom, functions, resources } = this.serverless.service;
    const { names, sinks } = delivering(this.serverless.getProvider('aws').getStage(), custom.upstreams);
    if (names.length === 0) return;
    const { DeliveryMapping: mapping, ConnectionDeliveryRole: role } = custom.delivery;
    functions[FUNCTION] = this.function(custom);
    const all = resources.Resources;
    all.EventsTable.Properties.StreamSpecification = { StreamViewType: 'NEW_IMAGE' };
    // Whoever waits for large objects may wait for them to fill.
    const isPatient = sinks.every((sink) => sink.s3 !== undefined);
    mapping.Properties.MaximumBatchingWindowInSeconds = isPatient ? 60 : 0;
    mapping.Properties.FilterCriteria = { Filters: [{ Pattern: JSON.stringify(filter(names)) }] };
    role.Properties.Policies[0].PolicyDocument.Statement.push(...statements(sinks, custom.names.secrets));
    Object.assign(all, custom.delivery);
    show(all.Dashboard.Properties.DashboardBody['Fn::Sub'], Object.keys(custom.delivery));
  }

  function({ names, settings }) {
    return {
      name: names.connection_delivery,
      description: 'Sends stored events on to the sinks that profiles name',
      handler: 'handlers/delivery.handler',
      role: 'ConnectionDeliveryRole',
      timeout: 120,
      memorySize: settings.control_memory_mb,
      environment: {
        CONTROL_TABLE: names.control_table,
        DEAD_LETTER_QUEUE_URL: { Ref: 'DeadLetterQueue' },
        STREAMS_DIR: 'env/streams',
        SECRETS_PREFIX: names.secrets,
        METRICS_BY: settings.metrics_by,
        POWERTOOLS_METRICS_NAMESPACE: names.metrics,
        POWERTOOLS_SERVICE_NAME: this.serverless.service.service,
        POWERTOOLS_LOG_LEVEL: settings.log_level,
      },
      events: [],
    };
  }
}

module.exports = Delivery;
Object.assign(module.exports, { delivering, filter, statements });
