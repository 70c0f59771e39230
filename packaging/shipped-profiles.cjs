// Chooses the profiles that ship. If a profile's address begins with a variable that is missing in the stage's
// `upstreams`, every connection of it would be rejected; it stays out of the zip, and a POST of it is a 404. As an osls
// plugin this keeps such profiles out, and names them in one line. It refuses a profile with a secret of another
// stage, which the function's role could not read, or with a variable that a stage cannot set.
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const toml = require('@iarna/toml');
const plugin = require('./plugin.cjs');

const STREAMS = path.join(__dirname, '..', 'env', 'streams');
const FILE = /^([A-Za-z0-9._-]+)\.toml$/;
// A secret whose full name is given.
const SECRET = /\$\{(secret|ssm):(\/[^:}]*)/g;
// Any `${...}` that is not a reference to a secret.
const OTHER = /\$\{(?!(?:secret|ssm):)([^}\n]*)/g;
// Only an address may have a variable.
const VARIABLE = /\$\{(UPSTREAM_[A-Z0-9_]+)\}/;
// On a laptop each run has variables of its own.
const { STAGES: NEVER_DEPLOYED } = require('./never-deployed.cjs');

// All texts of the profile `name`, parsed as TOML: one a line, without comments. For a file that is not TOML the error
// has the place, and quotes nothing; on a laptop the run itself reports it.
function texts(name, stage) {
  return strings(table(name, stage)).join('\n');
}

// The profile `name` as a table, {} for a broken one on a laptop.
function table(name, stage) {
  const file = path.join(STREAMS, `${name}.toml`);
  try {
    return toml.parse(fs.readFileSync(file, 'utf8'));
  } catch ({ line }) {
    if (NEVER_DEPLOYED.includes(stage)) return {};
    throw new Error(`env/streams/${name}.toml is not valid TOML${line === undefined ? '' : `: see line ${line + 1}`}.`);
  }
}

function strings(value) {
  if (typeof value === 'string') return [value];
  return value !== null && typeof value === 'object' ? Object.values(value).flatMap(strings) : [];
}

// Returns {shipped: names in order, left: [name, variable] of those that stay out} for a stage with these `upstreams`.
function choose(stage, upstreams) {
  const shipped = [];
  const left = [];
  for (const file of fs.readdirSync(STREAMS)) {
    const name = FILE.exec(file)?.[1];
    if (name === undefined) continue;
    const variable = VARIABLE.exec(texts(name, stage))?.[1];
    const isSet = variable === undefined || Object.hasOwn(upstreams, variable);
    if (isSet || NEVER_DEPLOYED.includes(stage)) shipped.push(name);
    else left.push([name, variable]);
  }
  return { shipped: shipped.sort(), left: left.sort() };
}

// What is wrong with the secrets that the profile `name` refers to: a stage may read only its own.
function foreignSecret(name, stage) {
  const own = `/streamkeeper/${stage}/`;
  const found = [...texts(name, stage).matchAll(SECRET)].find(([, , whole]) => !whole.startsWith(own));
  if (found === undefined) return null;
  const [, kind, whole] = found;
  const [, folder, rest] = /^\/(?:streamkeeper\/)?(?:([^/]+)\/)?(.+)$/.exec(whole) ?? [null, '', whole];
  const isStage = fs.existsSync(path.join(STREAMS, '..', `${folder}.yml`));
  const short = isStage || !folder ? rest : `${folder}/${rest}`;
  return (
    `env/streams/${name}.toml refers to ${whole}, but the stage ${stage} can read names under ${own} alone: ` +
    `write \${${kind}:${short}}, which is ${own}${short}.`
  );
}

// What is wrong with any other `${...}` in the profile `name`, which nothing would replace.
function strayVariable(name, upstreams) {
  const others = [...texts(name).matchAll(OTHER)];
  const found = others.find(([, inner]) => !Object.hasOwn(upstreams, inner));
  if (found === undefined) return null;
  const what = /^[A-Za-z0-9_]{1,40}$/.test(found[1]) ? `\${${found[1]}}` : 'another ${...}';
  return (
    `env/streams/${name}.toml holds ${what}, which no stage sets: an address may begin with \${UPSTREAM_...}, ` +
    'a variable of the stage\'s upstreams; docs/profiles.md says how a secret is written.'
  );
}

// This comes before anything is made.
function check(serverless) {
  const stage = serverless.getProvider('aws').getStage();
  const { upstreams } = serverless.service.custom;
  for (const name of choose(stage, upstreams).shipped) {
    const wrong = strayVariable(name, upstreams) ?? foreignSecret(name, stage);
    if (wrong !== null) throw new serverless.classes.Error(wrong);
  }
}

function apply(serverless, { log }) {
  const { custom, package: packaged } = serverless.service;
  const { left } = choose(serverless.getProvider('aws').getStage(), custom.upstreams);
  if (left.length === 0) return;
  packaged.patterns.push(...left.map(([name]) => `!env/streams/${name}.toml`));
  const reasons = left.map(([name, variable]) => `${name} (${variable})`).join(', ');
  log.notice(`Profiles left out, because upstreams of this stage lacks their variable: ${reasons}`);
}

module.exports = plugin({ 'before:package:createDeploymentArtifacts': apply, 'before:package:cleanup': check });
Object.assign(module.exports, { choose, foreignSecret, strayVariable, table });
