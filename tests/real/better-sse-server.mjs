// An event stream of the npm package better-sse on 127.0.0.1: an upstream that no one here wrote.
// Twenty events with ids; a client that names the last one it has gets those behind it. Prints its address.
import http from 'node:http';
import { createSession } from 'better-sse';

const COUNT = 20;
const server = http.createServer(async (request, response) => {
  const session = await createSession(request, response, { keepAlive: 100 });
  for (let n = Number(session.lastId || 0) + 1; n <= COUNT; n += 1) session.push({ n }, 'tick', String(n));
});
server.listen(0, '127.0.0.1', () => console.log(`better-sse listens on http://127.0.0.1:${server.address().port}`));
