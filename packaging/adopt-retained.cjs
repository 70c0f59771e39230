// An osls plugin that imports into the stack what an earlier stack of the stage left, before `sls deploy` updates it. A
// removed stack keeps tables, bucket and queue (DeletionPolicy in resources/storage.yml). Their names are fixed, so the
// next deployment would fail with "already exists". An import only adopts: it neither changes nor creates anything, and
// if it fails, it is undone without a deletion. The plugin asks the services themselves what exists; CloudFormation
// refuses to import what belongs to another stack.
'use strict';

const plugin = require('./plugin.cjs');

// The folder in which osls puts its templates.
const getS3EndpointForRegion = require('osls/lib/plugins/aws/utils/get-s3-endpoint-for-region');

// The property that is the name, for each type that may be retained.
const NAME = {
  'AWS::DynamoDB::Table': 'TableName',
  'AWS::S3::Bucket': 'BucketName',
  'AWS::SQS::Queue': 'QueueName',
};
const CHANGE_SET = 'adopt-retained';
const WAIT = { maxWaitTime: 600, minDelay: 1, maxDelay: 5 };

// The name as CloudFormation will resolve it. It is a literal, or an Fn::Sub with only pseudo parameters.
function resolved(name, pseudo) {
  const text = typeof name === 'string' ? name : name['Fn::Sub'];
  return text.replace(/\$\{(AWS::[A-Za-z]+)\}/g, (_, parameter) => pseudo[parameter]);
}

// The resources of `template` that outlive their stack, each with its name resolved.
function retained(template, pseudo) {
  return Object.entries(template.Resources)
    .filter(([, resource]) => (resource.DeletionPolicy ?? 'Delete') !== 'Delete')
    .map(([id, { Type: type, Properties: properties, ...rest }]) => {
      const name = resolved(properties[NAME[type]], pseudo);
      return { id, type, name, resource: { Type: type, ...rest, Properties: { ...properties, [NAME[type]]: name } } };
    });
}

// Returns for each type a function from a name to its identifier for the import, or null if nothing has that name.
function lookups(config, account) {
  const { DynamoDBClient, DescribeTableCommand } = require('@aws-sdk/client-dynamodb');
  const { S3Client, HeadBucketCommand } = require('@aws-sdk/client-s3');
  const { SQSClient, GetQueueUrlCommand } = require('@aws-sdk/client-sqs');
  const unless = async (absent, request) => {
    try {
      return await request;
    } catch (error) {
      if (absent.includes(error.name)) return null;
      throw error;
    }
  };
  return {
    'AWS::DynamoDB::Table': async (name) => {
      const request = new DynamoDBClient(config).send(new DescribeTableCommand({ TableName: name }));
      return (await unless(['ResourceNotFoundException'], request)) && { TableName: name };
    },
    'AWS::S3::Bucket': async (name) => {
      const input = { Bucket: name, ExpectedBucketOwner: account };
      return (await unless(['NotFound', 'NoSuchBucket'], new S3Client(config).send(new HeadBucketCommand(input))))
        && { BucketName: name };
    },
    'AWS::SQS::Queue': async (name) => {
      const absent = ['QueueDoesNotExist', 'AWS.SimpleQueueService.NonExistentQueue'];
      const queue = await unless(absent, new SQSClient(config).send(new GetQueueUrlCommand({ QueueName: name })));
      return queue && { QueueUrl: queue.QueueUrl };
    },
  };
}

// The physical ids of the stack's resources, by their logical ones.
async function ownedBy(client, stack) {
  const { paginateListStackResources } = require('@aws-sdk/client-cloudformation');
  const owned = new Map();
  for await (const page of paginateListStackResources({ client }, { StackName: stack })) {
    for (const one of page.StackResourceSummaries) {
      if (one.ResourceStatus !== 'DELETE_COMPLETE') owned.set(one.LogicalResourceId, one.PhysicalResourceId);
    }
  }
  return owned;
}

// Uploads the template beside the files of osls, and returns its address: a request may hold a template of 51,200 bytes
// at most, and a stage's is larger.
async function uploaded(provider, config, folder, text) {
  const { PutObjectCommand, S3Client } = require('@aws-sdk/client-s3');
  const Bucket = await provider.getServerlessDeploymentBucketName();
  const Key = `${folder}/${CHANGE_SET}.json`;
  await new S3Client(config).send(new PutObjectCommand({ Bucket, Key, Body: text, ContentType: 'application/json' }));
  return `https://${getS3EndpointForRegion(provider.getRegion())}/${Bucket}/${Key}`;
}

// Imports `found` into the stack; throws with CloudFormation's reason if it refuses, and then nothing is changed.
// `upload` puts a text where CloudFormation can read it, and returns its address.
async function importInto(client, stack, found, upload) {
  const cloudFormation = require('@aws-sdk/client-cloudformation');
  const { TemplateBody } = await client.send(
    new cloudFormation.GetTemplateCommand({ StackName: stack, TemplateStage: 'Original' }),
  );
  const template = JSON.parse(TemplateBody);
  for (const { id, resource } of found) template.Resources[id] = resource;
  const changeSet = { StackName: stack, ChangeSetName: CHANGE_SET };
  // A change set that an interrupted deployment left.
  await client.send(new cloudFormation.DeleteChangeSetCommand(changeSet));
  const made = { ...changeSet, ChangeSetType: 'IMPORT', Capabilities: ['CAPABILITY_NAMED_IAM'] };
  made.TemplateURL = await upload(JSON.stringify(template));
  made.ResourcesToImport = found.map(({ id, type, identifier }) => (
    { LogicalResourceId: id, ResourceType: type, ResourceIdentifier: identifier }));
  await client.send(new cloudFormation.CreateChangeSetCommand(made));
  const created = await cloudFormation.waitUntilChangeSetCreateComplete({ client, ...WAIT }, changeSet)
    .catch(() => null);
  if (created === null) {
    const { StatusReason } = await client.send(new cloudFormation.DescribeChangeSetCommand(changeSet));
    throw new Error(StatusReason);
  }
  await client.send(new cloudFormation.ExecuteChangeSetCommand(changeSet));
  await cloudFormation.waitUntilStackImportComplete({ client, ...WAIT }, { StackName: stack });
}

async function adopt(serverless, { log }) {
  const { CloudFormationClient } = require('@aws-sdk/client-cloudformation');
  const { service } = serverless;
  if (service.provider.shouldNotDeploy) return;
  const provider = serverless.getProvider('aws');
  const config = await provider.getAwsSdkV3Config();
  const client = new CloudFormationClient(config);
  const account = await provider.getAccountId();
  const pseudo = { 'AWS::AccountId': account, 'AWS::Region': provider.getRegion() };
  const stack = provider.naming.getStackName();
  const owned = await ownedBy(client, stack);
  const lookup = lookups(config, account);
  const found = [];
  for (const one of retained(service.provider.compiledCloudFormationTemplate, pseudo)) {
    if (owned.has(one.id)) continue;
    const identifier = await lookup[one.type](one.name);
    if (identifier) found.push({ ...one, identifier });
  }
  if (found.length === 0) return;
  const names = found.map(({ name }) => name).join(', ');
  try {
    const folder = service.package.artifactDirectoryName;
    await importInto(client, stack, found, (text) => uploaded(provider, config, folder, text));
  } catch (error) {
    throw new serverless.classes.Error(
      `The stack ${stack} cannot adopt what exists already (${names}): ${error.message}`);
  }
  log.notice(`Adopted what an earlier stack left: ${names}`);
}

module.exports = plugin({ 'before:aws:deploy:deploy:updateStack': adopt });
Object.assign(module.exports, { ownedBy, retained });
