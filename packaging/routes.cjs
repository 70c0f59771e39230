// The requests that the function behind the API answers, by their paths (packaging/functions.cjs). A POST
// of a stream goes to a machine. Every other method gets a 405 with the allowed methods; API Gateway itself would
// answer 403.
'use strict';

const STREAM = 'connections/{streamId}';
const ROUTES = {
  '/': ['get'],
  'openapi.json': ['get'],
  fleet: ['put', 'get'],
  connections: ['get'],
  [STREAM]: ['get', 'delete'],
  [`${STREAM}/events`]: ['get'],
  [`${STREAM}/gaps`]: ['get'],
  [`${STREAM}/timeline`]: ['get'],
  [`${STREAM}/machine`]: ['get'],
  [`${STREAM}/cost`]: ['get'],
  [`${STREAM}/latest`]: ['get'],
  [`${STREAM}/dead-letters`]: ['get'],
  [`${STREAM}/redrive`]: ['post'],
  [`${STREAM}/repair`]: ['post'],
  [`${STREAM}/sinks`]: ['get', 'post'],
};
// The page itself, which is the same for every caller: packaging/api.cjs requires no key there.
const PAGE = { console: ['get'], 'console/{file}': ['get'] };

const events = (routes, more) =>
  Object.entries(routes)
    .flatMap(([path, methods]) => [...methods, 'any'].map((method) => ({ http: { path, method, ...more } })));

module.exports = [...events(ROUTES, { private: true }), ...events(PAGE, {})];
