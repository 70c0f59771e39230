// An osls plugin that finishes the API of the compiled template by the stage's settings: who may call it (`api_auth`),
// how often, and whether calls are logged (`api_access_log`). It changes every compiled method, so that none can be
// forgotten. Only the page and its files need no key, because a browser cannot send one with a typed address, and
// they are the same for every caller. With `iam` there is neither a key nor a usage plan. The plan has no throttle,
// which would count all calls with a key together. The stage is a resource of its own, whose throttle counts every
// call. (osls would let the deployment create the stage, and then CloudFormation could not remove an access log.) AWS
// counts each method for itself: "Per-API, per-stage throttling limits are applied at the API method level for a stage"
// (API Gateway Developer Guide, "Throttle requests to your REST APIs"). So reads do not use up the rate of POSTs.
'use strict';

const plugin = require('./plugin.cjs');

const STAGE = 'ApiGatewayStage';
const LOG = 'ApiAccessLog';
const KEYS = ['AWS::ApiGateway::ApiKey', 'AWS::ApiGateway::UsagePlan', 'AWS::ApiGateway::UsagePlanKey'];
// The fields of a log line: who called what, and how it ended, but no query, body or signature. It has the type of an
// error, not its message, which quotes the signed headers, a session token among them.
const FORMAT = [
  'requestId', 'requestTime', 'identity.sourceIp', 'identity.userArn', 'identity.apiKeyId', 'httpMethod', 'path',
  'status', 'responseLength', 'responseLatency', 'error.responseType',
];

function finish({ service: { provider, custom } }) {
  const resources = provider.compiledCloudFormationTemplate.Resources;
  const byIam = custom.settings.api_auth === 'iam';
  for (const [id, { Type: type, Properties: properties }] of Object.entries(resources)) {
    if (type === 'AWS::ApiGateway::Method') {
      properties.AuthorizationType = byIam ? 'AWS_IAM' : 'NONE';
      properties.ApiKeyRequired = !byIam && !isPage(resources, properties.ResourceId.Ref);
    } else if (byIam && KEYS.includes(type)) {
      delete resources[id];
    } else if (type === 'AWS::ApiGateway::UsagePlan') {
      resources[id].DependsOn = STAGE;
    }
  }
  addStage(resources, custom);
}

// Whether it is the resource `console`, or one below it.
function isPage(resources, id) {
  const { PathPart, ParentId } = resources[id]?.Properties ?? {};
  return ParentId !== undefined
    && ((ParentId['Fn::GetAtt'] && PathPart === 'console') || isPage(resources, ParentId.Ref));
}

function addStage(resources, { settings, names }) {
  const [deploymentId, deployment] = Object.entries(resources)
    .find(([, one]) => one.Type === 'AWS::ApiGateway::Deployment');
  const { RestApiId, StageName } = deployment.Properties;
  delete deployment.Properties.StageName;
  const { api_requests_per_s: ThrottlingRateLimit, api_burst: ThrottlingBurstLimit } = settings;
  const every = { ResourcePath: '/*', HttpMethod: '*', ThrottlingRateLimit, ThrottlingBurstLimit };
  const Properties = { RestApiId, StageName, DeploymentId: { Ref: deploymentId }, MethodSettings: [every] };
  if (settings.api_access_log) {
    resources[LOG] = {
      Type: 'AWS::Logs::LogGroup',
      Properties: { LogGroupName: names.api_log, RetentionInDays: settings.log_retention_days },
    };
    const fields = FORMAT.map((name) => `"${name}":"$context.${name}"`);
    // A log group's own ARN ends in ":*", which a stage does not accept.
    const arn = `arn:\${AWS::Partition}:logs:\${AWS::Region}:\${AWS::AccountId}:log-group:\${${LOG}}`;
    Properties.AccessLogSetting = { DestinationArn: { 'Fn::Sub': arn }, Format: `{${fields.join(',')}}` };
  }
  resources[STAGE] = { Type: 'AWS::ApiGateway::Stage', Properties };
}

module.exports = plugin({ 'before:aws:package:finalize:mergeCustomProviderResources': finish });
