// PouchDB's server with databases in memory, on 127.0.0.1 at the port given: an upstream that no one here wrote.
// Prints one line when it listens. Nothing is written to disk and nothing outlives the process.
'use strict';

const express = require('express');
const PouchDB = require('pouchdb-core').plugin(require('pouchdb-adapter-memory'));

const port = Number(process.argv[2]);
if (!Number.isInteger(port) || port < 0 || port > 65535) {
  console.error('usage: node pouchdb-server.cjs PORT');
  process.exit(2);
}
const app = express();
app.use(require('express-pouchdb')(PouchDB.defaults({ adapter: 'memory' }),
  { inMemoryConfig: true, mode: 'minimumForPouchDB' }));
const server = app.listen(port, '127.0.0.1',
  () => console.log(`PouchDB listens on http://127.0.0.1:${server.address().port}`));
server.on('error', (error) => {
  console.error(error.message);
  process.exit(1);
});
