// Resolves ${file(env/settings.cjs)}: {settings, upstreams} of the stage. It checks the settings by the rules of
// settings.schema.json, and adds what follows from them. local/stages.py does the same on a laptop, in the
// same words: tests/deploy/test_settings.py compares the two. osls itself would read the file with more types (dates,
// octal numbers) and variables; here, as there, it has only the types of JSON.
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const Ajv = require('ajv/dist/2020').default;
const yaml = require('js-yaml');

const schema = require('./settings.schema.json');

// Readers of YAML disagree about the types of these.
const CONTROL = /[\0-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029]/;
// What a sentence may repeat: one line, and no more than a word or an address.
const SHORT = /^[ -~]{0,40}$/;

// streamkeeper-<stage>-events-<account>-<region> is a bucket, whose name has 63 characters at most; the longest region
// has 14.
const STAGE = /^[a-z][a-z0-9-]{0,14}$/;
const NAME_RULE = "A stage's name must be at most 15 lowercase letters, digits and hyphens, a letter first";

const scalar = (name, pattern, construct) =>
  new yaml.Type(`tag:yaml.org,2002:${name}`,
    { kind: 'scalar', resolve: (text) => pattern.test(text ?? ''), construct });
// The same patterns as in the interpreter of the machines (states_language.definition.source).
const JSON_TYPES = yaml.FAILSAFE_SCHEMA.extend({
  implicit: [
    scalar('bool', /^(?:true|false)$/, (text) => text === 'true'),
    scalar('null', /^(?:null|~|)$/, () => null),
    scalar('int', /^[-+]?[0-9]+$/, Number),
    scalar('float', /^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$/, Number),
  ],
});

const ajv = new Ajv({ allErrors: true, verbose: true });
ajv.addKeyword('mustBe');
ajv.addKeyword('handover');
ajv.addKeyword({
  keyword: 'sums',
  validate: function validate(rules, table) {
    validate.errors = rules
      .map((rule) => brokenSum(rule, table))
      .filter((message) => message !== '')
      .map((message) => ({ keyword: 'sums', message, params: {} }));
    return validate.errors.length === 0;
  },
});
const validate = ajv.compile(schema);

// The sentence if a rule is broken; '' if it holds, or if one of its settings is not a number.
function brokenSum(rule, table) {
  const bound = rule.lessThan ?? rule.atMost;
  const values = [...rule.of, bound].map((name) => table[name]);
  if (!values.every((value) => typeof value === 'number')) return '';
  const most = values.pop();
  const sum = values.reduce((total, value) => total + value, 0);
  if (sum < most || (rule.atMost && sum === most)) return '';
  const relation = rule.lessThan ? 'less than' : 'at most';
  return `${rule.of.join(' + ')} must be ${relation} ${bound}, not ${values.join(' + ')} beside ${most}`;
}

function mustBe(rules) {
  if (rules.mustBe !== undefined) return rules.mustBe;
  if (rules.enum !== undefined) return `one of ${rules.enum.join(', ')}`;
  return `a whole number from ${rules.minimum} to ${rules.maximum}`;
}

// The wrong value as text, which is the same in both languages.
function found(value) {
  if (value === null || value === undefined) return 'empty';
  if (typeof value === 'boolean') return String(value);
  if (typeof value === 'number') {
    if (Math.abs(value) > Number.MAX_SAFE_INTEGER) return 'so large a number';
    return Number.isInteger(value) ? String(value) : 'a fraction';
  }
  if (typeof value === 'string') return SHORT.test(value) ? `'${value}'` : 'another text';
  return Array.isArray(value) ? 'a list' : 'a table';
}

// What is wrong with a table of settings, without a full stop at its end; '' for a valid one.
function problem(table) {
  const unknown = Object.keys(table).filter((name) => !Object.hasOwn(schema.properties, name)).sort();
  if (unknown.length > 0) {
    const named = SHORT.test(unknown[0]) ? unknown[0] : 'of such a name';
    return `there is no setting ${named}; env/README.md lists them all`;
  }
  if (validate(table)) return '';
  const errors = validate.errors.map((error) => ({ ...error, place: error.instancePath.slice(1).split('/') }));
  for (const [name, rules] of Object.entries(schema.properties)) {
    if (!Object.hasOwn(table, name)) {
      if (schema.required.includes(name)) return `${name} is missing; it must be ${mustBe(rules)}`;
      continue;
    }
    const own = errors.filter(({ place }) => place[0] === name);
    // A setting's own rule comes before one that depends on another setting.
    const order = ({ place, instancePath, schemaPath }) =>
      `${place.length} ${instancePath} ${schemaPath.startsWith('#/then/') ? 1 : 0}`;
    own.sort((one, other) => (order(one) < order(other) ? -1 : 1));
    if (own.length > 0) {
      const { place, data, parentSchema } = own[0];
      // The content of a setting may hold a credential.
      return `${place.join('.')} must be ${mustBe(parentSchema)}${place.length > 1 ? '' : `, not ${found(data)}`}`;
    }
  }
  return errors[0].message;
}

// How many streams a function opens between its call and the moment at which its predecessor leaves.
function mostTogether({ function_timeout_s: limit, wait_s: wait, margin_s: margin }) {
  const { at_once: atOnce, young_ms: young, connect_ms: connect } = schema.handover;
  const round = Math.min(young, connect);
  const rounds = Math.floor((1000 * (limit - wait - margin) - connect + round) / round);
  return Math.max(1, atOnce * rounds);
}

// {settings, upstreams} of a table; throws an Error with one sentence for the first rule that is broken.
function checked(table, where) {
  if (table === null || typeof table !== 'object' || Array.isArray(table)) {
    throw new Error(`${where} must be a table of settings.`);
  }
  const wrong = problem(table);
  if (wrong !== '') throw new Error(`${where}: ${wrong}.`);
  const { upstreams = {}, ...settings } = table;
  return { settings: { ...settings, most_streams_per_function: mostTogether(table) }, upstreams };
}

// The same for a file's bytes.
function read(bytes, where) {
  let table;
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    if (CONTROL.test(text)) throw new Error('it has a tab or another control character');
    table = yaml.load(text, { schema: JSON_TYPES });
  } catch (error) {
    throw new Error(`${where} is not readable YAML: ${error.message.split('\n')[0]}.`);
  }
  return checked(table ?? null, where);
}

// Throws an Error with one sentence for a name that a stage may not have.
function checkName(stage) {
  if (!STAGE.test(stage)) throw new Error(`${NAME_RULE}, not ${found(stage)}.`);
}

module.exports = async ({ resolveVariable }) => {
  const stage = await resolveVariable('sls:stage');
  const where = `env/${stage}.yml`;
  const file = path.join(__dirname, `${stage}.yml`);
  checkName(stage);
  if (!fs.existsSync(file)) throw new Error(`There is no stage '${stage}': ${where} does not exist.`);
  return read(fs.readFileSync(file), where);
};
Object.assign(module.exports, { checkName, checked, read });
