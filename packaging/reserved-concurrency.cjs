// An osls plugin that reserves concurrency for the functions by the stage's settings: at most that many run at a time,
// and the account's other functions cannot use them up. A setting of 0 reserves nothing; to Lambda, a reservation of
// 0 would mean that none may run. Before anything is deployed, it asks Lambda whether the account has that many
// left. CloudFormation would find out only in the middle of the deployment, and roll everything back: a new account has
// 10 in all, none of which may be reserved.
'use strict';

const plugin = require('./plugin.cjs');

const SETTINGS = {
  connectionManager: 'connection_concurrency',
  connectionControl: 'control_concurrency',
  connectionWatch: 'watch_concurrency',
};
// AWS Lambda Developer Guide, "Configuring reserved concurrency": "You can reserve up to the Unreserved account
// concurrency value minus 100." An account with fewer in all keeps all of them.
const KEPT = 100;

// How many are reserved for the function already; 0 if it does not exist yet.
async function reservedFor(client, FunctionName) {
  const { GetFunctionConcurrencyCommand } = require('@aws-sdk/client-lambda');
  try {
    return (await client.send(new GetFunctionConcurrencyCommand({ FunctionName }))).ReservedConcurrentExecutions ?? 0;
  } catch (error) {
    if (error.name === 'ResourceNotFoundException') return 0;
    throw error;
  }
}

function reserve({ service: { custom, functions } }) {
  for (const [key, setting] of Object.entries(SETTINGS)) {
    const most = custom.settings[setting];
    if (most > 0) functions[key].reservedConcurrency = most;
  }
}

async function check(serverless, { log }) {
  const { custom, functions } = serverless.service;
  const wanted = Object.entries(SETTINGS).filter(([, setting]) => custom.settings[setting] > 0);
  if (wanted.length === 0) return;
  const { GetAccountSettingsCommand, LambdaClient } = require('@aws-sdk/client-lambda');
  let limit, more;
  try {
    const client = new LambdaClient(await serverless.getProvider('aws').getAwsSdkV3Config());
    limit = (await client.send(new GetAccountSettingsCommand({}))).AccountLimit;
    const known = await Promise.all(wanted.map(([key]) => reservedFor(client, functions[key].name)));
    more = wanted.reduce((sum, [, setting], n) => sum + custom.settings[setting] - known[n], 0);
  } catch (error) {
    // The deployer may lack the permission to ask.
    log.notice(`Not checked whether the account has the concurrency that the stage reserves: ${error.name}`);
    return;
  }
  const { ConcurrentExecutions: quota, UnreservedConcurrentExecutions: left } = limit;
  const kept = Math.min(KEPT, quota);
  if (more <= 0 || left - more >= kept) return;
  const settings = wanted.map(([, setting]) => `${setting} ${custom.settings[setting]}`).join(', ');
  throw new serverless.classes.Error(
    `The stage reserves concurrency (${settings}), ${more} more than now, but of this account's quota of ` +
      `${quota} only ${Math.max(left - kept, 0)} more may be reserved. Ask for a higher quota (Service Quotas, ` +
      'AWS Lambda, "Concurrent executions"), or set these to 0 in the settings of the stage: docs/deploy.md, ' +
      '"Concurrency".',
  );
}

module.exports = plugin({ 'before:package:compileFunctions': reserve, 'before:deploy:deploy': check });
