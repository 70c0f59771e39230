// An osls plugin that adds the delivery if a profile that ships has `deliver`, or if the stage names sinks for the
// profiles of its bucket (profile_sinks). It gives the events table a stream, and the stage a function that is called
// with it and a table of its own, with its role, its alarms and the permissions that the sinks need. The function
// that answers the API may read that table and call the function. A stage without such a profile gets none of this.
// handlers/profile/deliver_field.py checks the field.
'use strict';

const Ajv = require('ajv');
const plugin = require('./plugin.cjs');
const { definitions } = require('../env/profile.schema.json');
const { LIMITS } = require('./aws-limits.cjs');
const { allow, named } = require('./resources/roles.cjs');
const { choose, table } = require('./shipped-profiles.cjs');
const { STAGES: NEVER_DEPLOYED } = require('./never-deployed.cjs');

const FUNCTION = 'connectionDelivery';
const HERE = 'arn:${AWS::Partition}:SERVICE:${AWS::Region}:${AWS::AccountId}:';

// The permissions to send to a sink of each kind: [actions, the beginning of its ARN, its name].
const SINKS = {
  sqs: (name) => [['sqs:GetQueueAttributes', 'sqs:GetQueueUrl', 'sqs:SendMessage'], arn('sqs', ''), name],
  eventbridge: (name) => [['events:PutEvents'], arn('events', 'event-bus/'), name],
  kinesis: (name) => [['kinesis:PutRecords'], arn('kinesis', 'stream/'), name],
  firehose: (name) => [['firehose:PutRecordBatch'], arn('firehose', 'deliverystream/'), name],
  s3: (name, { prefix = '' }) => [['s3:PutObject'], 'arn:${AWS::Partition}:s3:::', `${name}/${prefix}*`],
  lambda: (name) => [['lambda:InvokeFunction'], arn('lambda', 'function:'), name],
};
// How many characters of ARNs the role's policy may have; the statements of resources/delivery.cjs take a tenth of what
// AWS allows.
const ROOM = 8000;
const MOST_PARTS = 4;
const WRITTEN = { eventName: ['INSERT', 'MODIFY'] };
// The word for sinks that are addresses, among the ARNs of profile_sinks.
const HTTP = 'http';
const listed = (text) => text.split(',').filter((one) => one !== '');
const SECRET = /\$\{(secret|ssm):([^:}]+)/;

function arn(service, resource) {
  return HERE.replace('SERVICE', service) + resource;
}

const ajv = new Ajv({ strict: false });
// The schema of each kind of sink, from env/profile.schema.json, which accepts what the profile's own check does.
const CHECKS = new Map(
  definitions.target.anyOf.map((schema) => [schema.required[0], ajv.compile({ ...schema, definitions })]),
);

// What is wrong with the sinks of a profile, which no role could allow; null if nothing is. It quotes no address, which
// may hold a secret.
function wrongSink(name, { deliver = [] }) {
  const says = (place, words) => `env/streams/${name}.toml: ${place} ${words}.`;
  for (const sink of [deliver].flat()) {
    const kinds = [...CHECKS.keys()].filter((kind) => Object.hasOwn(Object(sink), kind));
    if (kinds.length !== 1) {
      return says('deliver', `must be tables with one of ${[...CHECKS.keys()].sort().join(', ')} each`);
    }
    const [kind] = kinds;
    const check = CHECKS.get(kind);
    // To the schema, an instant of TOML is a text.
    const plain = JSON.stringify(sink, (_, value) => (typeof value === 'bigint' ? Number(value) : value));
    if (check(JSON.parse(plain))) continue;
    const [{ instancePath, message, params }] = check.errors;
    const field = params.additionalProperty ?? instancePath.slice(1);
    if (params.additionalProperty !== undefined) {
      return says(`deliver.${field}`, `is no field of a sink of the kind ${kind}`);
    }
    if (field !== kind) return says(`deliver.${field}`, message);
    const given = kind === 'webhook' ? '' : `, not ${JSON.stringify(sink[kind])}`;
    return says(`deliver.${kind}`, `must be ${check.schema.properties[kind].description}${given}`);
  }
  return null;
}

// {names, sinks} of the profiles that ship and deliver.
function delivering(stage, upstreams) {
  const sinksOf = ({ deliver = [] }) => [deliver].flat().filter((sink) => sink !== null && typeof sink === 'object');
  const found = choose(stage, upstreams).shipped.map((name) => [name, sinksOf(table(name, stage))]);
  const some = found.filter(([, sinks]) => sinks.length > 0);
  return { names: some.map(([name]) => name), sinks: some.flatMap(([, sinks]) => sinks) };
}

// The statements for these sinks, one for all targets of a kind; `secrets` begins the names of the stage's secrets. If
// the ARNs have more than `room` characters, names with a common beginning are allowed by it: market-events-* for
// market-events-1 and market-events-2. The common beginning must have a part of the name, so that no statement allows
// all targets of a kind, or another stage's secrets.
function statements(sinks, secrets, room = ROOM) {
  const targets = new Map();
  for (const [actions, begins, name] of sinks.flatMap((sink) => needed(sink, secrets))) {
    const key = JSON.stringify([actions, begins]);
    targets.set(key, (targets.get(key) ?? new Set()).add(name));
  }
  const groups = [...targets].sort().map(([key, names]) => [...JSON.parse(key), [...names].sort()]);
  const joined = () => groups.flatMap(([, begins, names]) => names.map((name) => begins + name)).join('');
  const isShort = () => joined().length <= room;
  for (let parts = 1; parts <= MOST_PARTS && !isShort(); parts++) {
    for (const group of groups) group[2] = alike(group[2], parts);
  }
  const resources = (begins, names) => names.map((name) => ({ 'Fn::Sub': begins + name }));
  return groups.map(([Action, begins, names]) => ({ Effect: 'Allow', Action, Resource: resources(begins, names) }));
}

// [actions, the beginning of the ARN, name] that the sink needs; nothing for one that the profile's own check refuses.
function needed(sink, secrets) {
  const kind = Object.keys(SINKS).find((name) => typeof sink[name] === 'string');
  if (kind !== undefined) return [SINKS[kind](sink[kind], sink)];
  const [, kept, name] = SECRET.exec(sink.secret ?? '') ?? [];
  if (kept === undefined) return [];
  // A whole name is one of the stage too (shipped-profiles.cjs).
  const own = name.startsWith(secrets) ? name.slice(secrets.length) : name;
  return kept === 'ssm'
    ? [[['ssm:GetParameter'], arn('ssm', `parameter${secrets}`), own]]
    : // Secrets Manager adds six characters to a name.
      [[['secretsmanager:GetSecretValue'], arn('secretsmanager', `secret:${secrets}`), `${own}-??????`]];
}

// The names; those that differ only in their last `parts` parts become one, with a `*` in place of these.
function alike(names, parts) {
  const left = `(?:[^-_./]*[-_./]){0,${parts - 1}}[^-_./]*`;
  const pattern = new RegExp(`^(.*?[A-Za-z0-9].*?[-_./])${left}$`);
  const beginning = (one) => pattern.exec(one.replace(/\*$/, ''))?.[1] ?? one;
  const groups = new Map();
  for (const one of names) groups.set(beginning(one), [...(groups.get(beginning(one)) ?? []), one]);
  return [...groups].flatMap(([text, members]) => (members.length > 1 ? [`${text}*`] : members));
}

// The same for profiles in a bucket, whose sinks packaging knows only from the stage's profile_sinks. Each action is
// allowed only on the resources of its own service.
function statementsOfBucket(text, secrets) {
  const [sinks, http] = [listed(text).filter((one) => one !== HTTP), listed(text).includes(HTTP)];
  const actions = Object.values(SINKS).flatMap((needs) => needs('', {})[0]).sort();
  return [
    ...(sinks.length > 0 ? [{ Effect: 'Allow', Action: actions, Resource: sinks }] : []),
    ...(http ? [
      allow('ssm', 'GetParameter', named('ssm', `parameter${secrets}*`)),
      allow('secretsmanager', 'GetSecretValue', named('secretsmanager', `secret:${secrets}*`)),
    ] : []),
  ];
}

// Which records call the function: written events of these profiles' streams, but no expired ones. A filter has 4,096
// characters at most, and a mapping five filters. With more profiles, every event calls the function, and it drops
// those that no sink wants. Source: AWS Lambda Developer Guide, "Filter rule syntax" and "Control which events
// Lambda sends".
function filters(names) {
  const keys = names.map((name) => [name, { prefix: `${name}:` }, { prefix: `${name}#` }]);
  const found = [];
  for (let rest = keys; rest.length > 0; ) {
    const pattern = (number) => ({ ...WRITTEN, dynamodb: { Keys: { PK: { S: rest.slice(0, number).flat() } } } });
    let number = 1;
    while (number < rest.length && JSON.stringify(pattern(number + 1)).length <= LIMITS.pattern) number++;
    found.push(pattern(number));
    rest = rest.slice(number);
  }
  return found.length > LIMITS.filters ? [WRITTEN] : found;
}

// Puts the delivery onto the dashboard: its alarms, and a row for each stream and sink.
function show(sub, keys) {
  const [text, variables] = sub;
  const board = JSON.parse(text);
  const alarms = board.widgets.find(({ type }) => type === 'alarm').properties.alarms;
  alarms.push(...keys.filter((key) => key.endsWith('Alarm')).map((key) => `\${${key}.Arn}`));
  const query =
    "SOURCE '${DeliveryLog}' | filter ispresent(Delivered) | stats sum(Delivered) as delivered, " +
    'sum(DeliveryFailed) as failed, sum(DeliveryDeadLettered) as dead_lettered by stream, sink | sort failed desc';
  const y = Math.max(...board.widgets.map((widget) => widget.y + widget.height));
  const properties = { title: 'Delivery, by stream and sink', region: '${AWS::Region}', view: 'table', query };
  board.widgets.push({ type: 'log', x: 0, y, width: 24, height: 6, properties });
  sub[0] = JSON.stringify(board);
  variables.DeliveryLog = { Ref: 'ConnectionDeliveryLogGroup' };
}

// The sentence for `profile_sinks` without a bucket: every event would call the function, which delivers none of them.
function wrongBucket({ profile_sinks: sinks, profiles_bucket: bucket }) {
  if (sinks === '' || bucket !== '') return null;
  return "profile_sinks is for the profiles of a bucket: name it in profiles_bucket, or set profile_sinks to ''.";
}

function add(serverless) {
  const { custom, functions, resources } = serverless.service;
  const stage = serverless.getProvider('aws').getStage();
  // On a laptop the run itself reports this, and the sinks of profiles besides these may be any (osls.py).
  const isRun = NEVER_DEPLOYED.includes(stage) || process.env.STREAMKEEPER_ANY_SINKS;
  for (const name of isRun ? [] : choose(stage, custom.upstreams).shipped) {
    const wrong = wrongSink(name, table(name, stage));
    if (wrong !== null) throw new serverless.classes.Error(wrong);
  }
  const wrong = wrongBucket(custom.settings);
  // A release is also packaged without each of its settings.
  if (wrong !== null && !process.env.STREAMKEEPER_TEMPLATE_ONLY) throw new serverless.classes.Error(wrong);
  const { names, sinks } = delivering(stage, custom.upstreams);
  const { profile_sinks: ofBucket } = custom.settings;
  if (names.length === 0 && ofBucket === '') return;
  const { DeliveryMapping: mapping, ConnectionDeliveryRole: role } = custom.delivery;
  functions[FUNCTION] = custom.delivery_function;
  // While events wait it calls itself again and again. If botocore sends the calls, as in China, Lambda would take
  // them for a runaway loop after sixteen ("Use Lambda recursive loop detection to prevent infinite loops").
  resources.extensions.ConnectionDeliveryLambdaFunction = { Properties: { RecursiveLoop: 'Allow' } };
  const all = resources.Resources;
  all.EventsTable.Properties.StreamSpecification = { StreamViewType: 'NEW_IMAGE' };
  const patterns = (ofBucket === '' ? filters(names) : [WRITTEN]).map((one) => ({ Pattern: JSON.stringify(one) }));
  mapping.Properties.FilterCriteria = { Filters: patterns };
  role.Properties.Policies[0].PolicyDocument.Statement.push(
    ...statements(sinks, custom.names.secrets), ...statementsOfBucket(ofBucket, custom.names.secrets),
  );
  const { DELIVERY_TABLE, CONNECTION_DELIVERY } = functions[FUNCTION].environment;
  Object.assign(functions.connectionControl.environment, { DELIVERY_TABLE, CONNECTION_DELIVERY });
  all.ConnectionControlRole.Properties.Policies[0].PolicyDocument.Statement.push(
    allow('dynamodb', 'Query', { 'Fn::GetAtt': ['DeliveryTable', 'Arn'] }),
    allow('lambda', 'InvokeFunction', named('lambda', `function:${CONNECTION_DELIVERY}`)),
  );
  Object.assign(all, custom.delivery);
  show(all.Dashboard.Properties.DashboardBody['Fn::Sub'], Object.keys(custom.delivery));
}

module.exports = plugin({ 'before:package:cleanup': add });
Object.assign(module.exports, { filters, statements, wrongBucket, wrongSink });
