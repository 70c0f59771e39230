// An osls plugin that, with the setting `deploy_by_waves`, keeps a deployment from reaching any stream by itself: new
// code and a new definition reach streams by `streamkeeper upgrade`, a few first. Before the first deployment
// that changes anything, it makes versions of what runs; the alias `stable` names the function's version, and the
// control table the machine's. After a deployment or a rollback to another definition, it deploys the former one again
// with a space at its end, and puts the stack's aside: handlers/upgrade/deployed_versions.py continues from there. It
// refuses both while an upgrade runs, because that judges what is deployed. A rollback makes no versions: what runs
// without one may be what it should replace.
'use strict';

const ALIAS = 'stable';
const KEY = { PK: { S: '#' }, SK: { S: 'upgrade' } };

class DeployByWaves {
  constructor(serverless, options, { log }) {
    this.serverless = serverless;
    this.log = log;
    this.hooks = {
      'before:deploy:deploy': () => this.pin(),
      'after:deploy:deploy': () => this.hold(),
    };
    // Without a timestamp osls only lists the deployments.
    if (options.timestamp) {
      Object.assign(this.hooks,
        { 'before:rollback:rollback': () => this.begin(), 'after:rollback:rollback': () => this.hold() });
    }
  }

  // Clients, and the stage's names; the machine's ARN follows from the alias's.
  async connect() {
    const config = await this.serverless.getProvider('aws').getAwsSdkV3Config();
    const { DynamoDBClient } = require('@aws-sdk/client-dynamodb');
    const { LambdaClient } = require('@aws-sdk/client-lambda');
    const { SFNClient } = require('@aws-sdk/client-sfn');
    const [table, functions, states] = [DynamoDBClient, LambdaClient, SFNClient].map((Client) => new Client(config));
    Object.assign(this, { table, functions, states });
    this.names = this.serverless.service.custom.names;
  }

  // The alias, and where the machine `name` is; null before the first deployment.
  async alias() {
    const { GetAliasCommand } = require('@aws-sdk/client-lambda');
    try {
      const FunctionName = this.names.connection_manager;
      return await this.functions.send(new GetAliasCommand({ FunctionName, Name: ALIAS }));
    } catch (error) {
      if (error.name === 'ResourceNotFoundException') return null;
      throw error;
    }
  }

  machine(alias, name) {
    const [arn, partition, , region, account] = alias.AliasArn.split(':');
    return [arn, partition, 'states', region, account, 'stateMachine', name].join(':');
  }

  // The alias; null before the first deployment, or without the setting. Throws while an upgrade runs.
  async begin() {
    if (!this.serverless.service.custom.settings.deploy_by_waves) return null;
    await this.connect();
    const alias = await this.alias();
    if (alias === null) return null;
    const { ListExecutionsCommand } = require('@aws-sdk/client-sfn');
    const stateMachineArn = this.machine(alias, this.names.upgrade);
    const asked = { stateMachineArn, statusFilter: 'RUNNING', maxResults: 1 };
    const running = await this.states.send(new ListExecutionsCommand(asked));
    if (running.executions.length > 0) {
      const stage = this.serverless.getProvider('aws').getStage();
      throw new this.serverless.classes.Error(
        `An upgrade of the streams is running (${running.executions[0].name}) and checks what is deployed: ` +
          'wait for its end ' +
          `(streamkeeper upgrade --stage ${stage} --follow), or have it go back (--abort).`,
      );
    }
    return alias;
  }

  async pin() {
    const alias = await this.begin();
    if (alias?.FunctionVersion !== '$LATEST') return;
    const { PublishVersionCommand, UpdateAliasCommand } = require('@aws-sdk/client-lambda');
    const FunctionName = this.names.connection_manager;
    const { Version } = await this.functions.send(new PublishVersionCommand({ FunctionName }));
    // The record comes first, because an alias that names a version means that all is done. Until then, a record that
    // is there already names the machine of a stage that was removed.
    await this.write('definition', await this.published(alias));
    await this.functions.send(new UpdateAliasCommand({ FunctionName, Name: ALIAS, FunctionVersion: Version }));
  }

  async published(alias) {
    const { PublishStateMachineVersionCommand } = require('@aws-sdk/client-sfn');
    const stateMachineArn = this.machine(alias, this.names.connections);
    return (await this.states.send(new PublishStateMachineVersionCommand({ stateMachineArn }))).stateMachineVersionArn;
  }

  async write(name, arn) {
    const { UpdateItemCommand } = require('@aws-sdk/client-dynamodb');
    const put = { ExpressionAttributeNames: { '#name': name }, ExpressionAttributeValues: { ':arn': { S: arn } } };
    const set = { TableName: this.names.control_table, Key: KEY, UpdateExpression: 'SET #name = :arn', ...put };
    await this.table.send(new UpdateItemCommand(set));
  }

  async definition(stateMachineArn) {
    const { DescribeStateMachineCommand } = require('@aws-sdk/client-sfn');
    return (await this.states.send(new DescribeStateMachineCommand({ stateMachineArn }))).definition;
  }

  async hold() {
    const { custom, provider } = this.serverless.service;
    if (!custom.settings.deploy_by_waves) return;
    const alias = await this.alias();
    const { GetItemCommand } = require('@aws-sdk/client-dynamodb');
    const asked = { TableName: this.names.control_table, Key: KEY, ConsistentRead: true };
    const former = (await this.table.send(new GetItemCommand(asked))).Item?.definition?.S;
    const stage = this.serverless.getProvider('aws').getStage();
    if (alias.FunctionVersion === '$LATEST' || former === undefined) {
      this.log.notice(`To check that it works: streamkeeper doctor --stage ${stage} --demo`);
      return;
    }
    // Also if nothing was deployed now: an earlier deployment may have been killed before it came here.
    const stateMachineArn = this.machine(alias, this.names.connections);
    const [before, now] = await Promise.all([this.definition(former), this.definition(stateMachineArn)]);
    if (now.trim() !== before.trim()) {
      await this.write('aside', await this.published(alias));
      const { UpdateStateMachineCommand } = require('@aws-sdk/client-sfn');
      await this.states.send(new UpdateStateMachineCommand({ stateMachineArn, definition: `${before.trim()} ` }));
    }
    if (provider.shouldNotDeploy) return;
    this.log.notice(
      `Streams run version ${alias.FunctionVersion} as before. To move them to the deployed version, a few first: ` +
        `streamkeeper upgrade --stage ${stage}`,
    );
  }
}

module.exports = DeployByWaves;
