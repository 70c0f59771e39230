// A Chromium, driven from a test: each line of standard input is a piece of JavaScript, the body of an async function of
// `page`, `context`, `browser` and `axe`; each line of standard output is what it returned, or how it failed.
// The browser is Debian's (CHROMIUM, or `chromium` on the path), else the one that @sparticuz/chromium ships, unpacked once
// into .streamkeeper-build/.
import { execFileSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { tmpdir } from 'node:os';

const require = createRequire(import.meta.url);
const FLAGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync'];
const AsyncFunction = (async () => {}).constructor;

async function program() {
  const onPath = (name) => (process.env.PATH ?? '').split(':').map((folder) => join(folder, name)).find((path) => existsSync(path));
  const installed = process.env.CHROMIUM || onPath('chromium') || onPath('chromium-browser');
  if (installed) return { path: installed };
  if (process.arch !== 'x64') throw new Error(`no package ships a Chromium for ${process.arch}; Debian's package chromium is used where it is installed`);
  const { version } = JSON.parse(readFileSync(join(dirname(require.resolve('@sparticuz/chromium')), '../../package.json'), 'utf8'));
  const build = resolve('.streamkeeper-build');
  const folder = join(build, `chromium-${version}`);
  if (!existsSync(folder)) {
    mkdirSync(build, { recursive: true });
    const fresh = mkdtempSync(join(build, 'chromium-'));
    const { TMPDIR } = process.env;
    process.env.TMPDIR = fresh; // where the package unpacks to
    const { default: chromium } = await import('@sparticuz/chromium');
    await chromium.executablePath();
    const { inflate } = await import(new URL('lambdafs.js', import.meta.resolve('@sparticuz/chromium')));
    await inflate(join(dirname(require.resolve('@sparticuz/chromium')), '../../bin/al2023.tar.br'));
    if (TMPDIR === undefined) delete process.env.TMPDIR;
    else process.env.TMPDIR = TMPDIR;
    try {
      renameSync(fresh, folder);
    } catch {
      rmSync(fresh, { recursive: true }); // another process was first
    }
  }
  const path = join(folder, 'chromium');
  // The libraries and fonts of its own are for a machine that lacks them.
  const lacks = execFileSync('ldd', [path], { encoding: 'utf8' }).includes('not found');
  const env = lacks ? { LD_LIBRARY_PATH: join(folder, 'al2023', 'lib') } : {};
  if (!existsSync('/etc/fonts/fonts.conf')) { // without a font it ends with the first page
    env.FONTCONFIG_FILE = join(profile, 'fonts.conf');
    const places = `<dir>${join(folder, 'fonts')}</dir><cachedir>${join(profile, 'fonts')}</cachedir>`;
    writeFileSync(env.FONTCONFIG_FILE, `<fontconfig>${places}</fontconfig>`);
  }
  return { path, env: { ...process.env, ...env } };
}

const lines = createInterface({ input: process.stdin });
const say = (answer) => process.stdout.write(`${JSON.stringify(answer)}\n`);
let browser;
let context;
let page;
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
const profile = mkdtempSync(join(tmpdir(), 'chromium-'));

/** A page of a new context: nothing of an earlier one is kept. */
async function open(options = {}) {
  await context?.close();
  context = await browser.newContext({ viewport: { width: 1200, height: 860 }, reducedMotion: 'reduce', timezoneId: 'UTC', ...options });
  context.setDefaultTimeout(120_000);
  page = await context.newPage();
  page.said = [];
  page.asked = [];
  page.on('console', (message) => page.said.push(`${message.type()}: ${message.text()}`));
  page.on('pageerror', (error) => page.said.push(`error: ${error.message}`));
  page.on('request', (request) => page.asked.push(request.url()));
  return page;
}

try {
  const { chromium } = require('playwright-core');
  const { path, env } = await program();
  browser = await chromium.launch({ executablePath: path, args: FLAGS, env: { ...(env ?? process.env), HOME: profile } });
  await open();
  say({ value: browser.version() });
} catch (error) {
  say({ missing: String(error.message).split('\n')[0] });
  process.exit(0);
}
for await (const line of lines) {
  try {
    const { code, input } = JSON.parse(line);
    say({ value: (await new AsyncFunction('page', 'context', 'browser', 'axe', 'open', 'input', code)(page, context, browser, axe, open, input)) ?? null });
  } catch (error) {
    say({ failure: String(error.stack) });
  }
}
await browser.close();
rmSync(profile, { recursive: true, force: true });
