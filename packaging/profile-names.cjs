// Resolves ${file(packaging/profile-names.cjs)}: the names of the profiles that ship, as a regular expression. From it
// API Gateway knows which streams exist; the zip of the same deployment has the files (shipped-profiles.cjs).
'use strict';

const { choose } = require('./shipped-profiles.cjs');

module.exports = async ({ resolveVariable }) => {
  // The bucket's profiles are unknown here; the machine looks for them.
  if ((await resolveVariable('self:custom.settings')).profiles_bucket !== '') return '[A-Za-z0-9._-]+';
  const { shipped } = choose(await resolveVariable('sls:stage'), await resolveVariable('self:custom.upstreams'));
  return shipped.map((name) => name.replaceAll('.', '[.]')).join('|');
};
