// What osls makes of ${file(env/settings.cjs)}: the settings of the stage, checked, with what follows from them added.
// Decides whether a settings file is usable, by the same rules and in the same words as local/stages.py; a test holds the
// two together. Does not read YAML: osls resolves env/<stage>.yml as it resolves any other file.
'use strict';

const NUMBERS = {
  function_timeout_s: [1, 900],
  wait_s: [1, 900],
  margin_s: [1, 900],
  start_allowance_s: [1, 900],
  lease_every_s: [1, 900],
  progress_every_s: [1, 900],
  retry_max_delay_s: [2, 3600],
  throttle_delay_s: [1, 3600],
  throttle_max_delay_s: [2, 3600],
  cool_down_s: [1, 3600],
  jitter_s: [0, 900],
  // With more cycles an execution could have more than 20,000 history events; local/bounds.py computes it.
  renew_after: [1, 161],
  // With more cycles an execution that no successor takes over from could have more than 24,900.
  give_up_after: [2, 148],
  unconnected_after_s: [1, 86400],
  memory_mb: [128, 10240],
  log_retention_days: [1, 3653],
  ledger_keep_days: [0, 3650],
};
const TEXTS = ['alert_email', 'log_level'];
const UPSTREAMS = 'upstreams';
const LOG_LEVELS = ['DEBUG', 'INFO', 'WARNING', 'ERROR'];

// The settings in `table` with what follows from them added; throws an Error with one sentence for the first rule that is broken.
function checked(table, where) {
  if (table === null || typeof table !== 'object' || Array.isArray(table)) {
    throw new Error(`${where} must be a table of settings.`);
  }
  for (const name of Object.keys(table)) {
    if (!Object.hasOwn(NUMBERS, name) && !TEXTS.includes(name) && name !== UPSTREAMS) throw new Error(`${where}: there is no setting ${name}.`);
  }
  for (const [name, [lowest, highest]] of Object.entries(NUMBERS)) {
    if (!Object.hasOwn(table, name)) throw new Error(`${where}: ${name} is missing.`);
    const value = table[name];
    if (!Number.isInteger(value) || value < lowest || value > highest) {
      throw new Error(`${where}: ${name} must be a whole number from ${lowest} to ${highest}.`);
    }
  }
  if (!LOG_LEVELS.includes(table.log_level)) {
    throw new Error(`${where}: log_level must be one of ${LOG_LEVELS.join(', ')}.`);
  }
  if (typeof table.alert_email !== 'string' || !/^(?:|[^\s@]+@[^\s@]+)$/.test(table.alert_email)) {
    throw new Error(`${where}: alert_email must be an e-mail address, or '' for none.`);
  }
  // They may be missing.
  const upstreams = Object.hasOwn(table, UPSTREAMS) ? table[UPSTREAMS] : {};
  const isTable = upstreams !== null && typeof upstreams === 'object' && !Array.isArray(upstreams);
  const isUpstream = ([name, address]) =>
    /^UPSTREAM_[A-Z0-9_]+$/.test(name) && typeof address === 'string' && /^https?:\/\/[^\s{}]+$/.test(address);
  if (!isTable || !Object.entries(upstreams).every(isUpstream)) {
    throw new Error(`${where}: upstreams must be a table of variables, each UPSTREAM_... with an http or https address, or {} for none.`);
  }
  // The successor must be connected before the predecessor leaves.
  if (!(table.wait_s + table.margin_s < table.function_timeout_s)) {
    throw new Error(`${where}: wait_s + margin_s must be less than function_timeout_s.`);
  }
  // Jitter makes the wait shorter, so that no overlap does.
  if (table.jitter_s >= table.wait_s) {
    throw new Error(`${where}: jitter_s must be less than wait_s.`);
  }
  if (table.throttle_delay_s > table.throttle_max_delay_s) {
    throw new Error(`${where}: throttle_delay_s must not exceed throttle_max_delay_s.`);
  }
  // A successor is asked for once at least.
  if (table.renew_after >= table.give_up_after) {
    throw new Error(`${where}: renew_after must be less than give_up_after.`);
  }
  const { [UPSTREAMS]: _, ...settings } = table;
  return {
    ...settings,
    // What is left for the lanes is a cycle in which a successor is asked for.
    claim_tries: table.give_up_after - 1,
    task_timeout_s: table.function_timeout_s + table.start_allowance_s,
    // A lane lives through its predecessor's overlap and the other lane's whole wait. What is left, after the reading of
    // the lease that begins an overlap and half a margin for two connects, is the longest overlap that leaves no gap.
    overlap_max_s: Math.max(
      0,
      table.function_timeout_s - table.wait_s - table.margin_s - table.lease_every_s - Math.floor(table.margin_s / 2),
    ),
  };
}

module.exports = async ({ resolveVariable }) => {
  const stage = await resolveVariable('sls:stage');
  const where = `env/${stage}.yml`;
  const table = /^[a-z][a-z0-9-]{0,15}$/.test(stage) ? await resolveVariable(`file(${where}), null`) : null;
  if (table === null) throw new Error(`There is no stage '${stage}': ${where} does not exist.`);
  return checked(table, where);
};
module.exports.checked = checked;
