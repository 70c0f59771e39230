// Resolves ${file(packaging/parts.cjs)}: the streams that are read in parts, each with the ids of its parts as JSON, as
// a map of Velocity. handlers/profile/addresses.py makes an id in the same way; a test compares them. The characters of
// a part (handlers/profile/parts_field.py) need no encoding in a template, so any other is refused here.
'use strict';

const { choose, table } = require('./shipped-profiles.cjs');

const PART = /^[A-Za-z0-9._~/*:,@+-]{1,64}$/;

module.exports = async ({ resolveVariable }) => {
  const stage = await resolveVariable('sls:stage');
  const { shipped } = choose(stage, await resolveVariable('self:custom.upstreams'));
  const parts = shipped.map((name) => [name, table(name, stage).parts]).filter(([, listed]) => listed !== undefined);
  const wrong = parts.find(([, listed]) => !Array.isArray(listed) || !listed.every((one) => PART.test(one)));
  if (wrong) {
    const path = `env/streams/${wrong[0]}.toml`;
    throw new Error(`${path} has wrong parts: \`streamkeeper profile check\` names the problem.`);
  }
  const ids = ([name, listed]) => `"${name}": '${JSON.stringify(listed.map((one) => `${name}:${one}`))}'`;
  return `{${parts.map(ids).join(', ')}}`;
};
