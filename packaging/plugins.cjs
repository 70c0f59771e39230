// Resolves the osls plugins of a stage. The stages "local" and "test" are never deployed: they need the template, but
// neither the Python requirements nor compiled files in the zip, which take most of the time. So does anything that
// needs only the template (STREAMKEEPER_TEMPLATE_ONLY): its zip has our own files.
'use strict';

const { STAGES } = require('./never-deployed.cjs');

module.exports = async ({ resolveVariable }) => {
  const stage = await resolveVariable('sls:stage');
  const always = [
    'serverless-step-functions',
    './packaging/profiles-bucket.cjs',
    // This one comes after the plugins that write states into a machine.
    './packaging/partition.cjs',
    './packaging/check-machines.cjs',
    './packaging/api.cjs',
    './packaging/machine-logs.cjs',
    './packaging/reserved-concurrency.cjs',
    './packaging/delivery.cjs',
    // This one comes after the delivery, whose function it places as well.
    './packaging/vpc.cjs',
    './packaging/permissions-boundary.cjs',
  ];
  const deployed = [
    ...(process.env.STREAMKEEPER_TEMPLATE_ONLY ? [] : ['serverless-python-requirements']),
    './packaging/compile-pyc.cjs',
    './packaging/shipped-profiles.cjs',
    './packaging/adopt-retained.cjs',
    './packaging/deletion-protection.cjs',
    './packaging/deploy-by-waves.cjs',
  ];
  // The last one checks the template and the zip when they are whole.
  return [...always, ...(STAGES.includes(stage) ? ['./packaging/never-deployed.cjs'] : deployed),
    './packaging/aws-limits.cjs'];
};
