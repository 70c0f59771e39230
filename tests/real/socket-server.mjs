// A feed of twenty numbered prices on a WebSocket of an npm package, `ws` or `faye-websocket`, on 127.0.0.1: an
// upstream that no one here wrote. It wants a subscription first, and closes half-way, so that a client must come again
// with its cursor. Each line that it prints is what it has heard, after its address.
import http from 'node:http';
import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);
const name = process.argv[2];
const COUNT = 20;
const say = (line) => console.log(line);

const serve = (send, close, ping, said) => {
  const message = JSON.parse(said);
  if (message.op !== 'subscribe') return say(`said ${said}`);
  say(`subscribed since ${message.since ?? 'now'}`);
  send(JSON.stringify({ op: 'subscribed' }));
  const first = Number(message.since ?? 0) + 1;
  const last = first <= COUNT / 2 ? COUNT / 2 : COUNT;
  for (let n = first; n <= last; n += 1) send(JSON.stringify({ n, text: n % 5 ? 'short' : 'long'.repeat(20_000) }));
  ping('are you there', () => {
    say('ponged');
    if (last < COUNT) close(4000, 'half-way');
  });
};

const server = http.createServer();
if (name === 'ws') {
  const { WebSocketServer } = require('ws');
  new WebSocketServer({ server, perMessageDeflate: true }).on('connection', (socket) => {
    socket.on('message', (data) => serve(
      (text) => socket.send(text), (code, reason) => socket.close(code, reason),
      (text, done) => { socket.once('pong', done); socket.ping(text); }, String(data),
    ));
    socket.on('close', (code) => say(`closed with ${code}`));
  });
} else {
  const Socket = require('faye-websocket');
  server.on('upgrade', (request, stream, head) => {
    const socket = new Socket(request, stream, head);
    socket.on('message', (event) => serve(
      (text) => socket.send(text), (code, reason) => socket.close(code, reason),
      (text, done) => socket.ping(text, done), event.data,
    ));
    socket.on('close', (event) => say(`closed with ${event.code}`));
  });
}
server.listen(0, '127.0.0.1', () => say(`listens on ws://127.0.0.1:${server.address().port}`));
