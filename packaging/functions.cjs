// Resolves ${file(packaging/functions.cjs)}: the functions, each with the variables that it reads. A variable has the
// setting of its own name, unless VARIABLES says otherwise. packaging/delivery.cjs adds `delivery` where a profile
// delivers.
'use strict';

const events = require('./routes.cjs');

const setting = (name) => `\${self:custom.settings.${name}}`;
const called = (name) => `\${self:custom.names.${name}}`;
const ref = (id) => ({ Ref: id });

const VARIABLES = {
  EVENTS_TABLE: called('events_table'),
  EVENTS_BUCKET: ref('EventsBucket'),
  CONTROL_TABLE: called('control_table'),
  DELIVERY_TABLE: called('delivery_table'),
  DEAD_LETTER_QUEUE_URL: ref('DeadLetterQueue'),
  ALERTS_TOPIC_ARN: ref('AlertsTopic'),
  STATE_MACHINE_ARN: ref('Connections'),
  START_MACHINE_ARN: ref('Start'),
  FLEET_MACHINE_ARN: ref('Fleet'),
  CONNECTION_MANAGER: called('connection_manager'),
  CONNECTION_DELIVERY: called('connection_delivery'),
  REPAIR_FUNCTION: called('connection_repair'),
  STREAMS_DIR: 'env/streams',
  SECRETS_PREFIX: called('secrets'),
  POWERTOOLS_SERVICE_NAME: '${self:service}',
  POWERTOOLS_METRICS_NAMESPACE: called('metrics'),
  POWERTOOLS_LOG_LEVEL: setting('log_level'),
  // Freed memory goes back to the system at once: by glibc's own rules an event of 8 MB took 35 MB more
  // (`python -m bench.memory`).
  MALLOC_ARENA_MAX: '1',
  MALLOC_MMAP_THRESHOLD_: '131072',
  MALLOC_TRIM_THRESHOLD_: '131072',
};
const POWERTOOLS = ['POWERTOOLS_SERVICE_NAME', 'POWERTOOLS_LOG_LEVEL'];
const METRICS = 'POWERTOOLS_METRICS_NAMESPACE';
// What bounds when a failed connection is tried again.
const BACK_OFF = 'RETRY_MAX_DELAY_S THROTTLE_MAX_DELAY_S COOL_DOWN_S JITTER_S';

function made(name, handler, description, timeout, memory, variables, more = {}) {
  const names = [...variables.split(' '), ...POWERTOOLS];
  return {
    name: called(`connection_${name}`),
    description,
    handler,
    role: `Connection${name[0].toUpperCase()}${name.slice(1)}Role`,
    timeout,
    memorySize: setting(memory),
    environment: Object.fromEntries(names.map((one) => [one, VARIABLES[one] ?? setting(one.toLowerCase())])),
    ...more,
  };
}

const functions = {
  connectionManager: made(
    'manager', 'handlers/connection_manager.handler', 'Keeps one connection to a stream and stores its events',
    setting('function_timeout_s'), 'memory_mb',
    // One that keeps a group backs off as the machine does for a stream in no group.
    'EVENTS_TABLE EVENTS_BUCKET CONTROL_TABLE DEAD_LETTER_QUEUE_URL STREAMS_DIR SECRETS_PREFIX REPAIR_FUNCTION ' +
      `${BACK_OFF} THROTTLE_DELAY_S MARGIN_S WAIT_S LEASE_EVERY_S PROGRESS_EVERY_S KEEP_DAYS LEDGER_KEEP_DAYS ` +
      `BUDGET_EVENTS_PER_DAY BUDGET_BYTES_PER_DAY METRICS_BY ${METRICS} ` +
      'MALLOC_ARENA_MAX MALLOC_MMAP_THRESHOLD_ MALLOC_TRIM_THRESHOLD_',
  ),
  connectionControl: made(
    'control', 'handlers/control.handler',
    'Answers the HTTP API - lists streams, shows their status and events, takes stop requests',
    // API Gateway waits for 29 seconds.
    20, 'control_memory_mb',
    'EVENTS_TABLE EVENTS_BUCKET CONTROL_TABLE DEAD_LETTER_QUEUE_URL STATE_MACHINE_ARN STREAMS_DIR FLEET_MACHINE_ARN ' +
      `LEASE_EVERY_S PROGRESS_EVERY_S ${BACK_OFF} REPAIR_FUNCTION`,
    { events },
  ),
  connectionWatch: made(
    'watch', 'handlers/watch.handler',
    'Reports once a minute which streams should be connected but are not, and starts orphaned streams again',
    // As much of a processor as 100,000 streams need: `python -m bench.watch`.
    55, 'watch_memory_mb',
    'CONTROL_TABLE STATE_MACHINE_ARN ALERTS_TOPIC_ARN DEAD_LETTER_QUEUE_URL UNCONNECTED_AFTER_S REPAIR_FUNCTION ' +
      METRICS,
    { events: [{ schedule: 'rate(1 minute)' }] },
  ),
  connectionUpgrade: made(
    'upgrade', 'handlers/upgrading.handler',
    'Moves streams to another version of the function and watches them, a step at a time',
    300, 'control_memory_mb', 'CONTROL_TABLE EVENTS_TABLE CONNECTION_MANAGER STATE_MACHINE_ARN',
  ),
  connectionFleet: made(
    'fleet', 'handlers/applying.handler', 'Starts and stops streams as a document wants it, some minutes at a time',
    300, 'watch_memory_mb',
    `CONTROL_TABLE START_MACHINE_ARN STREAMS_PER_FUNCTION LEASE_EVERY_S PROGRESS_EVERY_S ${BACK_OFF}`,
  ),
  connectionRepair: made(
    'repair', 'handlers/repairing.handler',
    'Fetches what streams missed in gaps from the addresses that profiles name, one stream of an upstream at a time',
    300, 'control_memory_mb',
    'EVENTS_TABLE EVENTS_BUCKET CONTROL_TABLE DEAD_LETTER_QUEUE_URL STREAMS_DIR KEEP_DAYS SECRETS_PREFIX',
  ),
};
const delivery = made(
  'delivery', 'handlers/delivery.handler',
  'Sends stored events on to the sinks that profiles name, each from its own place',
  120, 'delivery_memory_mb',
  'CONTROL_TABLE EVENTS_TABLE DELIVERY_TABLE CONNECTION_DELIVERY DEAD_LETTER_QUEUE_URL STREAMS_DIR SECRETS_PREFIX ' +
    `METRICS_BY ${METRICS}`,
  { events: [] },
);

module.exports = { functions, delivery };
