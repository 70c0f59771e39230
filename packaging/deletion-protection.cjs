// An osls plugin that protects the tables of a stage from deletion, but does not get in the way of a first deployment.
// If a first deployment fails, CloudFormation rolls it back, and DynamoDB would refuse to delete a protected table: the
// table would stay, and the stack's roll-back would fail. So tables that the stack does not own yet are created without
// protection, and get it once the deployment has succeeded. Every later deployment has it in its template. The template
// of the first one is kept without it, so a roll-back to that removes the protection, and the plugin sets it again.
'use strict';

const { ownedBy } = require('./adopt-retained.cjs');

const TABLE = 'AWS::DynamoDB::Table';

class DeletionProtection {
  constructor(serverless, options) {
    this.serverless = serverless;
    this.options = options;
    this.later = [];
    this.hooks = {
      'before:aws:deploy:deploy:uploadArtifacts': () => this.postpone(),
      'after:aws:deploy:deploy:updateStack': () => this.protect(),
      'after:rollback:rollback': () => this.protectAgain(),
    };
  }

  async postpone() {
    const { CloudFormationClient } = require('@aws-sdk/client-cloudformation');
    const provider = this.serverless.getProvider('aws');
    const resources = this.serverless.service.provider.compiledCloudFormationTemplate.Resources;
    const wanted = Object.entries(resources).filter(
      ([, { Type: type, Properties: properties }]) => type === TABLE && properties.DeletionProtectionEnabled,
    );
    if (wanted.length === 0) return;
    const client = new CloudFormationClient(await provider.getAwsSdkV3Config());
    const owned = await ownedBy(client, provider.naming.getStackName());
    this.later = wanted.filter(([id]) => !owned.has(id)).map(([, { Properties: properties }]) => properties);
    for (const properties of this.later) delete properties.DeletionProtectionEnabled;
  }

  async protect() {
    if (this.later.length === 0 || this.serverless.service.provider.shouldNotDeploy) return;
    await this.set(this.later.map(({ TableName }) => TableName));
  }

  async protectAgain() {
    const { settings, names } = this.serverless.service.custom;
    // Without a timestamp nothing was rolled back: osls only listed the deployments.
    if (!this.options.timestamp || !settings.deletion_protection) return;
    await this.set([names.events_table, names.control_table]);
  }

  async set(tables) {
    const { DescribeTableCommand, DynamoDBClient, UpdateTableCommand } = require('@aws-sdk/client-dynamodb');
    const client = new DynamoDBClient(await this.serverless.getProvider('aws').getAwsSdkV3Config());
    for (const TableName of tables) {
      const { Table } = await client.send(new DescribeTableCommand({ TableName }));
      if (Table.DeletionProtectionEnabled) continue;
      await client.send(new UpdateTableCommand({ TableName, DeletionProtectionEnabled: true }));
    }
  }
}

module.exports = DeletionProtection;
