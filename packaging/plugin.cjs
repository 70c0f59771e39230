// Makes an osls plugin of what it calls at each hook, with the service and what osls gives a plugin, such as its log.
'use strict';

module.exports = (hooks) => class Plugin {
  constructor(serverless, options, utils) {
    const calls = Object.entries(hooks).map(([hook, act]) => [hook, () => act(serverless, utils)]);
    this.hooks = Object.fromEntries(calls);
  }
};
