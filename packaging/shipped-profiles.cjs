// Chooses the profiles that ship. One whose address begins with a variable that the stage's `upstreams` have not would be
// rejected at its first connection, for ever; it stays out of the zip, and a POST of it is a 404. As an osls plugin this
// gives the variables to the function that connects, keeps the other profiles out, and says in one line which those are.
'use strict';

const fs = require('node:fs');
const path = require('node:path');

const STREAMS = path.join(__dirname, '..', 'env', 'streams');
const FILE = /^([A-Za-z0-9._-]+)\.toml$/;
const VARIABLE = /^address\s*=\s*["']\$\{(UPSTREAM_[A-Z0-9_]+)\}/m;
// These stages are never deployed: on a laptop each run has variables of its own.
const NEVER_DEPLOYED = ['local', 'test'];

// Returns {shipped: names, in order, left: [name, variable] of those that stay out} of a stage; `upstreams` may be null.
function choose(stage, upstreams) {
  const shipped = [];
  const left = [];
  for (const file of fs.readdirSync(STREAMS)) {
    const name = FILE.exec(file)?.[1];
    if (name === undefined) continue;
    const variable = VARIABLE.exec(fs.readFileSync(path.join(STREAMS, file), 'utf8'))?.[1];
    const isSet = variable === undefined || Object.hasOwn(upstreams ?? {}, variable);
    if (isSet || NEVER_DEPLOYED.includes(stage)) shipped.push(name);
    else left.push([name, variable]);
  }
  return { shipped: shipped.sort(), left: left.sort() };
}

class ShippedProfiles {
  constructor(serverless, options, { log }) {
    this.serverless = serverless;
    this.log = log;
    this.hooks = { 'before:package:createDeploymentArtifacts': () => this.apply() };
    this.hooks['before:package:compileFunctions'] = () => this.setVariables();
  }

  setVariables() {
    const { custom, functions } = this.serverless.service;
    Object.assign(functions.connectionManager.environment, custom.upstreams);
  }

  apply() {
    const { custom, package: packaged } = this.serverless.service;
    const { left } = choose(this.serverless.getProvider('aws').getStage(), custom.upstreams);
    if (left.length === 0) return;
    packaged.patterns.push(...left.map(([name]) => `!env/streams/${name}.toml`));
    const reasons = left.map(([name, variable]) => `${name} (${variable})`).join(', ');
    this.log.notice(`Profiles that do not ship, for upstreams of this stage lacks their variable: ${reasons}`);
  }
}

module.exports = ShippedProfiles;
module.exports.choose = choose;
