// An osls plugin that refuses to package what AWS would refuse in the middle of a deployment, in one sentence with what
// would help. Sizes are those of the compiled template, with each reference as long as its value can be. Sources:
// AWS CloudFormation User Guide, "Understand CloudFormation quotas"; AWS Lambda Developer Guide, "Lambda quotas" and
// "Control which events Lambda sends to your function"; IAM User Guide, "IAM and AWS STS quotas"; API Gateway Developer
// Guide, "Quotas for configuring and running a REST API".
'use strict';

const fs = require('node:fs/promises');
const JSZip = require('jszip');

const { STAGES } = require('./never-deployed.cjs');
const plugin = require('./plugin.cjs');

const MB = 1024 * 1024;
const LIMITS = {
  template: 1 * MB,
  resources: 500,
  outputs: 200,
  zip: 250 * MB,
  variables: 4096,
  policies: 10240,
  pattern: 4096,
  filters: 5,
  mapping: 300 * 1024,
};
const LONGEST = { 'AWS::Partition': 'aws-us-gov', 'AWS::Region': 'ap-northeast-1x', 'AWS::AccountId': '000000000000' };
const REFERENCE = 'x'.repeat(120);

// The value, with each reference that CloudFormation resolves to a text replaced by a text that is no shorter.
function resolved(value) {
  if (Array.isArray(value)) return value.map(resolved);
  if (value === null || typeof value !== 'object') return value;
  if (value.Ref !== undefined) return LONGEST[value.Ref] ?? REFERENCE;
  if (value['Fn::GetAtt'] !== undefined) return REFERENCE;
  if (value['Fn::Sub'] !== undefined) {
    const [text, given = {}] = [value['Fn::Sub']].flat();
    const put = (_, name) => LONGEST[name] ?? (name in given ? resolved(given[name]) : REFERENCE);
    return text.replace(/\$\{([^!}]+)\}/g, put);
  }
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, resolved(one)]));
}

const size = (value) => Buffer.byteLength(JSON.stringify(resolved(value)));
const count = (number) => number.toLocaleString('en-US');

// What is wrong with a compiled template, in one sentence; null if AWS accepts it.
function problem(template) {
  const all = Object.entries(template.Resources);
  const bytes = Buffer.byteLength(JSON.stringify(template));
  const outputs = Object.keys(template.Outputs ?? {}).length;
  return (
    much('The template has', bytes, 'bytes', LIMITS.template, FEWER_PROFILES) ??
    much('The template has', all.length, 'resources', LIMITS.resources, 'remove some of your own') ??
    much('The template has', outputs, 'outputs', LIMITS.outputs, 'remove some of your own') ??
    all.map(([id, one]) => OF_TYPE[one.Type]?.(id, one.Properties ?? {}) ?? null).find((text) => text !== null) ??
    null
  );
}

const FEWER_PROFILES = 'ship fewer profiles in this stage';
const FEWER_SINKS = 'have profiles share sinks, or begin the names of sinks alike';
const FEWER_DELIVER = 'have fewer profiles deliver';
const OF_TYPE = {
  'AWS::Lambda::Function': (id, { Environment: environment }) => {
    const bytes = size(environment?.Variables ?? {});
    return much(`The variables of ${id} have`, bytes, 'bytes', LIMITS.variables, 'shorten those that you added');
  },
  'AWS::IAM::Role': (id, { Policies: policies = [] }) => {
    const length = policies.reduce((sum, { PolicyDocument: document }) => sum + size(document), 0);
    return much(`The policies of ${id} have`, length, 'characters', LIMITS.policies, FEWER_SINKS);
  },
  'AWS::Lambda::EventSourceMapping': (id, { FilterCriteria: criteria }) => {
    const lengths = (criteria?.Filters ?? []).map(({ Pattern: text }) => text.length);
    return (
      much(`${id} has`, lengths.length, 'filters', LIMITS.filters, FEWER_DELIVER) ??
      much(`A filter of ${id} has`, Math.max(0, ...lengths), 'characters', LIMITS.pattern, FEWER_DELIVER)
    );
  },
  'AWS::ApiGateway::Method': (id, { Integration: integration }) => {
    const longest = Math.max(0, ...Object.values(integration?.RequestTemplates ?? {}).map(size));
    return much(`A mapping template of ${id} has`, longest, 'bytes', LIMITS.mapping, FEWER_PROFILES);
  },
};

// The sentence if there is more than AWS allows, else null.
function much(has, found, unit, most, help) {
  return found > most ? `${has} ${count(found)} ${unit}, and AWS allows ${count(most)}: ${help}.` : null;
}

// The same for a zip, which Lambda unpacks.
async function problemOfZip(artifact) {
  const zip = await JSZip.loadAsync(await fs.readFile(artifact));
  const bytes = Object.values(zip.files).reduce((sum, file) => sum + (file._data?.uncompressedSize ?? 0), 0);
  return much('The unpacked zip of the functions has', bytes, 'bytes', LIMITS.zip, 'ship less in it');
}

// What is wrong with the settings of a group, null if nothing is. With more streams than a handover has time for, the
// last ones have a gap at each handover. env/settings.cjs computes how many there is time for.
function lateHandover({ streams_per_function: streams, most_streams_per_function: most, ...settings }) {
  if (streams <= most) return null;
  const { function_timeout_s: limit, wait_s: wait, margin_s: margin } = settings;
  return (
    `streams_per_function must be at most ${most}, not ${streams}: between wait_s ${wait} and function_timeout_s ` +
    `${limit} less margin_s ${margin} a function has time to open no more, and a shorter wait_s gives it more.`
  );
}

function refuse({ classes }, text) {
  if (text !== null) throw new classes.Error(text);
}

module.exports = plugin({
  // On a laptop upstreams are near, and tests have groups of any size.
  'before:package:cleanup': (serverless) => {
    const isNear = STAGES.includes(serverless.getProvider('aws').getStage());
    if (!isNear) refuse(serverless, lateHandover(serverless.service.custom.settings));
  },
  'after:package:createDeploymentArtifacts': async (serverless) =>
    refuse(serverless, await problemOfZip(serverless.service.package.artifact)),
  'after:aws:package:finalize:mergeCustomProviderResources': (serverless) =>
    refuse(serverless, problem(serverless.service.provider.compiledCloudFormationTemplate)),
});
Object.assign(module.exports, { LIMITS, lateHandover, problem });
