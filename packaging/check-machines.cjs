// An osls plugin that refuses to package a state machine which is not valid Amazon States Language. It checks a copy:
// the same check inside serverless-step-functions (`validate: true`) writes QueryLanguage into every state of the
// definition that it deploys, which CloudFormation's schema does not allow in a Succeed state. The check takes longer
// than most of packaging. So the plugin remembers valid definitions beside the validator, by a hash of the
// definition and the validator's version, and does not check them again.
'use strict';

const { createHash } = require('node:crypto');
const { createRequire } = require('node:module');
const { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } = require('node:fs');
const { dirname, join } = require('node:path');

const VALIDATOR = 'asl-validator';
const MOST_REMEMBERED = 1000;

module.exports = class CheckMachines {
  constructor(serverless) {
    this.hooks = { 'before:package:compileFunctions': () => check(serverless) };
  }
};
module.exports.validate = validate;

function check({ configurationInput, classes }) {
  const ofValidator = require.resolve(`${VALIDATOR}/package.json`);
  const folder = join(dirname(dirname(ofValidator)), '.cache', 'streamkeeper-machines');
  for (const [name, machine] of Object.entries(configurationInput.stepFunctions.stateMachines)) {
    const text = JSON.stringify([require(ofValidator).version, machine.definition]);
    const mark = join(folder, createHash('sha256').update(text).digest('hex'));
    if (existsSync(mark)) continue;
    const { isValid, errorsText } = validate(machine.definition);
    if (!isValid) throw new classes.Error(`The state machine ${name} is invalid: ${errorsText(' ')}`);
    remember(folder, mark);
  }
}

// The validator makes an Ajv of the same schemas for each definition, and compiling them takes most of its time. Here
// all definitions share the first one, which has its keywords already.
let shared;
function validate(definition) {
  const ajv = createRequire(require.resolve(VALIDATOR))('ajv');
  const Ajv = ajv.default;
  ajv.default = function (options) {
    if (shared) shared.addKeyword = () => shared;
    else shared = new Ajv(options);
    return shared;
  };
  try {
    return require(VALIDATOR)(structuredClone(definition));
  } finally {
    ajv.default = Ajv;
  }
}

// If the file cannot be written, the next packaging checks again.
function remember(folder, mark) {
  try {
    mkdirSync(folder, { recursive: true });
    if (readdirSync(folder).length >= MOST_REMEMBERED) rmSync(folder, { recursive: true });
    mkdirSync(folder, { recursive: true });
    writeFileSync(mark, '');
  } catch (problem) {
    if (!problem.code) throw problem;
  }
}
