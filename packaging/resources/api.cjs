// The answers of API Gateway itself, and the statuses and headers of the POST's answers. No answer quotes a text of AWS
// that names the account or the caller. Each kind has its own response, so that a problem's `status` is the answer's.
'use strict';

const { problem, status } = require('../problems.cjs');

// A template here is not in Velocity: API Gateway inserts variables as they are. $context.error.messageString is JSON.
const OWN_WORDS = '$context.error.messageString';
const COULD_NOT = 'The API could not answer the request.';
// By API Gateway's kind of response: the name of the resource, the kind of problem, and its detail. The two kinds of an
// integration are 504; the two defaults are for all kinds that are not named here.
const RESPONSES = {
  DEFAULT_4XX: ['ApiRefusal', 'bad-request', OWN_WORDS],
  MISSING_AUTHENTICATION_TOKEN: ['ApiNoRoute', 'no-route', OWN_WORDS],
  INVALID_API_KEY: ['ApiBadKey', 'not-allowed', OWN_WORDS],
  INVALID_SIGNATURE: ['ApiBadSignature', 'not-allowed', OWN_WORDS],
  EXPIRED_TOKEN: ['ApiExpired', 'not-allowed', OWN_WORDS],
  ACCESS_DENIED: ['ApiForbidden', 'not-allowed', 'The caller has no permission for this request.'],
  REQUEST_TOO_LARGE: ['ApiTooLarge', 'too-large', OWN_WORDS],
  UNSUPPORTED_MEDIA_TYPE: ['ApiBadBody', 'bad-body', OWN_WORDS],
  THROTTLED: ['ApiThrottled', 'throttled', 'The API takes no more requests now. Try again in 1 s.'],
  QUOTA_EXCEEDED: ['ApiQuota', 'throttled', OWN_WORDS],
  DEFAULT_5XX: ['ApiFailure', 'bad-answer', COULD_NOT],
  API_CONFIGURATION_ERROR: ['ApiBroken', 'failed', COULD_NOT],
  INTEGRATION_TIMEOUT: ['ApiUnanswered', 'unavailable', COULD_NOT],
  INTEGRATION_FAILURE: ['ApiUnreached', 'unavailable', COULD_NOT],
};

function resource(type, kind, detail) {
  const headers = { 'gatewayresponse.header.Content-Type': "'application/problem+json'" };
  if (type === 'THROTTLED') headers['gatewayresponse.header.Retry-After'] = "'1'";
  return {
    Type: 'AWS::ApiGateway::GatewayResponse',
    Properties: {
      RestApiId: { Ref: 'ApiGatewayRestApi' },
      ResponseType: type,
      StatusCode: String(status(kind)),
      ResponseParameters: headers,
      ResponseTemplates: { 'application/json': problem(kind, detail) },
    },
  };
}

const Resources = {};
for (const [type, [name, kind, detail]] of Object.entries(RESPONSES)) Resources[name] = resource(type, kind, detail);

const TYPED = { 'method.response.header.Content-Type': false };
const TIMED = { ...TYPED, 'method.response.header.Retry-After': false };

module.exports = {
  Resources,
  extensions: {
    // The plugin declares only the responses 200 and 400 of a method; the others are added here.
    ApiGatewayMethodConnectionsStreamidVarPost: {
      // A deployment of the API has what exists when it is created, so it is created after the methods.
      DependsOn: Object.keys(Resources),
      Properties: {
        MethodResponses: [
          { StatusCode: 200 },
          { StatusCode: 400, ResponseParameters: TYPED },
          { StatusCode: 404, ResponseParameters: TYPED },
          { StatusCode: 429, ResponseParameters: TIMED },
          { StatusCode: 503, ResponseParameters: TYPED },
        ],
      },
    },
  },
};
