// Evaluates requests against the statements of roles with @cloud-copilot/iam-simulate. Reads {account, requests} as
// JSON, where a request has role, statements, action and resource; writes a verdict for each, in order.
'use strict';

const fs = require('node:fs');
const { runSimulation } = require('@cloud-copilot/iam-simulate');

async function verdict(account, { role, statements, action, resource }) {
  const answer = await runSimulation({
    request: {
      principal: `arn:aws:sts::${account}:assumed-role/${role}/session`,
      action,
      resource: { resource, accountId: account },
      contextVariables: {},
    },
    identityPolicies: [{ name: role, policy: { Version: '2012-10-17', Statement: statements } }],
    serviceControlPolicies: [],
    resourceControlPolicies: [],
  }, {});
  return answer.overallResult ?? JSON.stringify(answer.errors);
}

async function main() {
  const { account, requests } = JSON.parse(fs.readFileSync(0, 'utf8'));
  const verdicts = [];
  for (const request of requests) verdicts.push(await verdict(account, request));
  process.stdout.write(JSON.stringify(verdicts));
}

main();
