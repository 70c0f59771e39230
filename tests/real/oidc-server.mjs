// A certified token server (npm's oidc-provider) whose tokens live for seconds, which replaces a refresh token at each
// use and revokes all that came of it where one is used twice; and streams of numbers that ask it whether a token is
// good.
import http from 'node:http';
import Provider from 'oidc-provider';

const [port, lives] = process.argv.slice(2).map(Number);
const state = { granted: 0, errors: [], opened: {}, refused: {} };
const issued = [];
const open = new Set();
const began = Date.now();
let isDown = false;
const grants = ['client_credentials', 'refresh_token', 'authorization_code'];
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{
    client_id: 'demo', client_secret: 'a secret: +%', grant_types: grants,
    redirect_uris: ['https://app.example/'], response_types: ['code'],
  }],
  features: { clientCredentials: { enabled: true }, devInteractions: { enabled: false } },
  rotateRefreshToken: true,
  ttl: { ClientCredentials: lives, AccessToken: lives, RefreshToken: 3600, Grant: 3600, IdToken: 3600 },
  findAccount: (_context, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
});
for (const name of ['access_token.saved', 'client_credentials.saved']) provider.on(name, (token) => issued.push(token));
provider.on('grant.success', () => { state.granted += 1; });
provider.on('grant.error', (_context, error) => state.errors.push(error.message));
const answer = provider.callback();
const counted = (counts, name) => { counts[name] = (counts[name] ?? 0) + 1; };

async function stream(request, response) {
  const name = request.url.slice('/events/'.length);
  const token = (request.headers.authorization ?? '').replace('Bearer ', '');
  if (!(await provider.AccessToken.find(token)) && !(await provider.ClientCredentials.find(token))) {
    counted(state.refused, name);
    response.writeHead(401).end();
    return;
  }
  counted(state.opened, name);
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  let at = Number(request.headers['last-event-id'] ?? 0);
  const timer = setInterval(() => {
    const newest = Math.floor((Date.now() - began) / 500);
    while (at < newest) response.write(`id: ${at += 1}\ndata: ${at}\n\n`);
    response.write(':\n\n');
  }, 200);
  open.add(response);
  response.on('close', () => { clearInterval(timer); open.delete(response); });
}

const said = {
  state: () => JSON.stringify(state),
  drop: () => open.forEach((response) => response.destroy()),
  revoke: () => Promise.all(issued.splice(0).map((token) => token.destroy())),
  down: () => { isDown = true; },
  up: () => { isDown = false; },
  async refresh() {
    const client = await provider.Client.find('demo');
    const grant = new provider.Grant({ accountId: 'somebody', clientId: 'demo' });
    grant.addOIDCScope('openid offline_access');
    const granted = { grantId: await grant.save(), scope: 'openid offline_access', gty: 'authorization_code' };
    return new provider.RefreshToken({ accountId: 'somebody', client, ...granted }).save();
  },
};
http.createServer(async (request, response) => {
  const wanted = said[request.url.slice('/do/'.length)];
  if (wanted) response.end(String(await wanted()));
  else if (request.url.startsWith('/events/')) await stream(request, response);
  else if (isDown) request.socket.destroy();
  else answer(request, response);
}).listen(port, '127.0.0.1', () => console.log('ready'));
