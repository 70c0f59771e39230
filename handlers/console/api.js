// Makes requests to this server's API, one at a time if that is enough, and reports when the server is away.
// Invariants: the key is only in the session storage of this tab, and goes only to this server; an answer that is not
// understood is a failure, never a guess.

import { setServerTime } from './words.js';

const KEY = 'streamkeeper-key';
const LIMIT_MS = 25_000;
const LONGEST_MS = 15_000;

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? '',
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

/** The request was refused: `status` and the sentence of the server; 0 if no server answered. */
export class Failure extends Error {
  /** `kind` and `fix` are those of the problem, "" if the answer is not a problem. */
  constructor(status, sentence, kind = '', fix = '') {
    super(sentence);
    Object.assign(this, { status, kind, fix });
  }

  /** Whether a key is missing or wrong. */
  get needsKey() {
    return this.status === 401 || this.status === 403;
  }

  /** Whether the server is away or overloaded, so that the request may be repeated later. */
  get passes() {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

/**
 * The JSON of the answer; paths are relative to the page, because a deployed API has the stage's name before them.
 * `known` is a Map in which a view keeps what it requests again: the answer by its path, with its tag. An unchanged
 * answer (304) is the same object as before.
 */
export async function ask(path, method = 'GET', known = null) {
  const headers = key.get() ? { 'x-api-key': key.get() } : {};
  const before = known?.get(path);
  if (before) headers['if-none-match'] = before.tag;
  let response;
  let body;
  try {
    response = await fetch(path, { method, headers, cache: 'no-store', signal: AbortSignal.timeout(LIMIT_MS) });
    setServerTime(Date.parse(response.headers.get('date')), 3000); // it has whole seconds, and was on its way
    body = await response.text();
  } catch {
    throw new Failure(0, 'The server does not answer.');
  }
  if (before && response.status === 304) return before.answer;
  let answer;
  try {
    answer = JSON.parse(body);
  } catch {
    throw new Failure(response.ok ? 502 : response.status, 'The server answered something that is not JSON.');
  }
  if (!response.ok) {
    const sentence = answer.detail ?? answer.message ?? `The server answered ${response.status}.`;
    throw new Failure(response.status, sentence, answer.type?.split(':').at(-1), answer.fix);
  }
  const tag = response.headers.get('etag');
  if (known && tag) known.set(path, { tag, answer });
  return answer;
}

/** The path of a stream, or of a resource below it. A browser takes a segment of dots for another path. */
export function streamPath(id, below = '') {
  if (/^\.\.?$/.test(id)) {
    throw new Failure(400, `The stream id '${id}' is malformed: it has only dots.`, 'bad-stream-id');
  }
  return `connections/${encodeURIComponent(id)}${below}`;
}

/** Repeats `work` until `stop` is called: `every` ms after its end, later while it fails, not while hidden. */
export function repeat(work, every, failed) {
  let timer = 0;
  let failures = 0;
  let isOver = false;
  let isRunning = false;
  let isDue = false;
  const again = (ms) => {
    clearTimeout(timer);
    if (!isOver) timer = setTimeout(run, ms);
  };
  async function run() {
    // One at a time: a request that comes meanwhile is done after it.
    isDue = isRunning;
    if (document.hidden || isRunning) return;
    isRunning = true;
    const began = performance.now();
    let rest;
    try {
      await work();
      failures = 0;
      // A slow server gets fewer requests, but what the page shows does not grow old.
      rest = Math.max(every, Math.min(LONGEST_MS, 3 * (performance.now() - began)));
    } catch (failure) {
      failures += 1;
      rest = Math.min(LONGEST_MS, 1000 * 2 ** Math.min(failures - 1, 4));
      if (!isOver) failed(failure, rest);
    }
    isRunning = false;
    again(isDue ? 0 : rest);
  }
  const shown = () => !document.hidden && again(0);
  document.addEventListener('visibilitychange', shown);
  again(0);
  return {
    now: () => again(0),
    stop() {
      isOver = true;
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', shown);
    },
  };
}
