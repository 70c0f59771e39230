// Makes an osls plugin that calls `act` at one hook, with the service and what osls gives a plugin, such as its log.
'use strict';

module.exports = (hook, act) => class Plugin {
  constructor(serverless, options, utils) {
    this.hooks = { [hook]: () => act(serverless, utils) };
  }
};
