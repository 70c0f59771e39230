// An osls plugin that refuses to package a state machine which is not valid Amazon States Language.
// It checks a copy: the same check inside serverless-step-functions (`validate: true`) writes QueryLanguage into every
// state of the definition that it deploys, which CloudFormation's schema does not allow in a Succeed state.
'use strict';

const aslValidator = require('asl-validator');

class CheckMachines {
  constructor(serverless) {
    this.serverless = serverless;
    this.hooks = { 'before:package:compileFunctions': () => this.check() };
  }

  check() {
    const machines = this.serverless.configurationInput.stepFunctions.stateMachines;
    for (const [name, machine] of Object.entries(machines)) {
      const { isValid, errorsText } = aslValidator(structuredClone(machine.definition));
      if (!isValid) throw new this.serverless.classes.Error(`The state machine ${name} is invalid: ${errorsText(' ')}`);
    }
  }
}

module.exports = CheckMachines;
