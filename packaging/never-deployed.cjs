// An osls plugin for the stages of a laptop, which are never deployed. They package without requirements, and with
// profiles whose upstream is this machine, so what they deployed could not start. So it refuses `sls deploy` of one.
'use strict';

const plugin = require('./plugin.cjs');

const STAGES = ['local', 'test'];

function refuse(serverless) {
  const stage = serverless.getProvider('aws').getStage();
  throw new serverless.classes.Error(
    `The stage ${stage} is for a laptop and cannot be deployed: deploy dev, prod, or a stage of your own ` +
      '(docs/deploy.md).',
  );
}

module.exports = plugin({ 'before:deploy:deploy': refuse });
Object.assign(module.exports, { STAGES });
