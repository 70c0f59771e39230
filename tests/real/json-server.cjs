// json-server with a list of trades in memory, on 127.0.0.1 at the port given: a REST server that no one here wrote.
// Prints one line when it listens. Nothing is written to disk and nothing outlives the process.
'use strict';

const jsonServer = require('json-server');

const app = jsonServer.create();
app.use(jsonServer.bodyParser);
app.use(jsonServer.router({ trades: [] }));
const server = app.listen(Number(process.argv[2]), '127.0.0.1',
  () => console.log(`json-server listens on http://127.0.0.1:${server.address().port}`));
