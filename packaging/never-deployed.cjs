// An osls plugin for the stages of a laptop, which are never deployed. They package without requirements, and with
// profiles whose upstream is this machine, so what they deployed could not start. So it refuses `sls deploy` of one.
'use strict';

const STAGES = ['local', 'test'];

module.exports = class NeverDeployed {
  constructor(serverless) {
    this.hooks = {
      'before:deploy:deploy': () => {
        const stage = serverless.getProvider('aws').getStage();
        throw new serverless.classes.Error(
          `The stage ${stage} is for a laptop and cannot be deployed: deploy dev, prod, or a stage of your own ` +
            '(docs/deploy.md).',
        );
      },
    };
  }
};
Object.assign(module.exports, { STAGES });
