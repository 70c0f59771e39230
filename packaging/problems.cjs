// The problems that API Gateway answers itself, each a text of JSON by RFC 9457. handlers/api/problems.json has the
// kinds, from which the function behind the API makes its own problems; a test compares both.
'use strict';

const kinds = require('../handlers/api/problems.json');

const SEVERAL = 'Step Functions starts no more executions now. Try again in 5 s.';
const NOT_STARTED = 'Step Functions could not start the execution.';
const STREAM_ID =
  "A stream id is a profile's name, optionally with a colon and any text in UTF-8: 256 characters at most, none of " +
  "them a control character, and no part between colons '.' or '..'.";
const NO_PARAMETERS = 'A POST that starts a stream has no parameters.';
const UNKNOWN = 'There is no such stream: its id must begin with the name of a profile.';
const MEANT = "Did you mean '$meant'? GET / lists all profiles.";
const UNKNOWN_FIX = `#if($meant != '')${MEANT}#{else}${kinds['unknown-stream'].fix}#end`;

// `detail` is a text, or a variable of API Gateway that holds JSON already.
function problem(kind, detail, field = null, fix = kinds[kind].fix) {
  const { status, title } = kinds[kind];
  const members = { type: `urn:problem-type:streamkeeper:${kind}`, title, status };
  const spelled = detail.startsWith('$') ? detail : JSON.stringify(detail);
  const rest = { field, fix, request_id: '$context.extendedRequestId' };
  return `${JSON.stringify(members).slice(0, -1)},"detail":${spelled},${JSON.stringify(rest).slice(1)}`;
}

// The same as the whole answer of a template: with its status and its headers in place of the response's.
function answer(kind, text, headers = {}) {
  const { status } = kinds[kind];
  const every = Object.entries({ 'Content-Type': 'application/problem+json', ...headers });
  const set = every.map(([name, value]) => `#set($context.responseOverride.header.${name} = "${value}")`);
  return [text, ...set, `#set($context.responseOverride.status = ${status})`].join('\n');
}

module.exports = {
  problem,
  status: (kind) => kinds[kind].status,
  starts_no_more: answer('throttled', problem('throttled', SEVERAL), { 'Retry-After': '5' }),
  not_started: answer('unavailable', problem('unavailable', NOT_STARTED)),
  no_parameters: answer('bad-query', problem('bad-query', NO_PARAMETERS, null, 'Leave them out.')),
  malformed: answer('bad-stream-id', problem('bad-stream-id', STREAM_ID, 'streamId')),
  unknown: answer('unknown-stream', problem('unknown-stream', UNKNOWN, 'streamId', UNKNOWN_FIX)),
};
