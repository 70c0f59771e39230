// An osls plugin that refuses to package a state machine which is not valid Amazon States Language. It checks a copy:
// the same check inside serverless-step-functions (`validate: true`) writes QueryLanguage into every state of the
// definition that it deploys, which CloudFormation's schema does not allow in a Succeed state.
'use strict';

const { createRequire } = require('node:module');
const plugin = require('./plugin.cjs');

const VALIDATOR = 'asl-validator';

module.exports = plugin({ 'before:package:compileFunctions': check });
module.exports.validate = validate;

function check({ configurationInput, classes }) {
  for (const [name, { definition }] of Object.entries(configurationInput.stepFunctions.stateMachines)) {
    const { isValid, errorsText } = validate(definition);
    if (!isValid) throw new classes.Error(`The state machine ${name} is invalid: ${errorsText(' ')}`);
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
