// An osls plugin of the stages that a laptop reads and nobody deploys. They package without requirements, and with profiles
// whose upstream is this machine: what they would deploy could not start. So `sls deploy` of one is refused.
'use strict';

const STAGES = ['local', 'test'];

module.exports = class NeverDeployed {
  constructor(serverless) {
    this.hooks = {
      'before:deploy:deploy': () => {
        const stage = serverless.getProvider('aws').getStage();
        throw new serverless.classes.Error(
          `The stage ${stage} is for a laptop and cannot be deployed: deploy dev, prod, or a stage of your own (docs/deploy.md).`,
        );
      },
    };
  }
};
Object.assign(module.exports, { STAGES });
