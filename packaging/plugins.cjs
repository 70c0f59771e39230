// Which osls plugins a stage needs. Stage "local" is read, not deployed: it needs the template, and neither the Python
// requirements nor compiled files in the zip, which take most of the time of a packaging.
'use strict';

module.exports = async ({ resolveVariable }) => {
  const stage = await resolveVariable('sls:stage');
  const always = ['serverless-step-functions', './packaging/check-machines.cjs'];
  const deployed = ['serverless-python-requirements', './packaging/compile-pyc.cjs'];
  return ['local', 'test'].includes(stage) ? always : [...always, ...deployed];
};
