// Formats numbers, lengths and instants for people, and has the words of a status.

export const CLOCK = new Intl.DateTimeFormat(undefined,
  { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
const DAY = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium' });
const WHOLE = new Intl.NumberFormat('en-US');
const LENGTHS = [[86_400, 'd'], [3_600, 'h'], [60, 'min'], [1, 's']];

// The word, the mark beside it, and the class that colours both: never the colour alone.
export const STATUSES = {
  running: ['Running', '●', 'good'],
  starting: ['Starting', '◌', 'busy'],
  reconnecting: ['Reconnecting', '↻', 'warn'],
  stopping: ['Stopping', '◌', 'busy'],
  stopped: ['Stopped', '■', 'idle'],
  ended: ['Ended', '■', 'idle'],
  rejected: ['Rejected', '✕', 'bad'],
  broken: ['Broken', '✕', 'bad'],
  unknown: ['Unknown', '?', 'warn'],
};
// Whether an execution holds the stream, so that it can be stopped and not started.
export const HELD = ['starting', 'running', 'reconnecting', 'stopping', 'unknown'];

/** What a person must do about a stream that is over, by its reason. */
export const nextStep = (reason) => (reason ?? '').split('; ').at(-1);

/** Whether a start can bring no more: the stream has the one answer to what is requested once. */
export const isAnswered = (reason) => nextStep(reason).startsWith('for another answer');

export const number = (value) => WHOLE.format(value);

/** A number and what it counts: 1 gap, 2 gaps. */
export const counted = (count, what) => `${number(count)} ${what}${count === 1 ? '' : 's'}`;

/** Milliseconds as a verdict has them: 104 ms, 3.2 s, 2 d 3 h. No line ends between a number and its unit. */
export function length(ms) {
  if (ms < 1000) return `${Math.round(ms)}\u00a0ms`;
  if (ms < 10_000) return `${Math.floor(ms / 100) / 10}\u00a0s`;
  const seconds = Math.floor(ms / 1000);
  const [[size, unit], [next, small] = [1]] = LENGTHS.slice(LENGTHS.findIndex(([one]) => seconds >= one));
  const rest = Math.floor((seconds % size) / next);
  return `${Math.floor(seconds / size)}\u00a0${unit}${rest ? ` ${rest}\u00a0${small}` : ''}`;
}

// By how much the server's clock is ahead of the viewer's.
let aheadMs = 0;

/** The instant by the server's clock, by which all ages count. */
export const serverNow = () => Date.now() + aheadMs;

/** Takes over the server's clock if that is more than `apartMs` from what was known of it. */
export function setServerTime(serverMs, apartMs = 0) {
  if (Math.abs(serverMs - serverNow()) > apartMs) aheadMs = serverMs - Date.now();
}

/** An instant's time of day, with the day if that is not today, on one line; "–" for none. */
export function clock(at) {
  if (!at) return '–';
  const date = new Date(at);
  const isToday = date.toDateString() === new Date(serverNow()).toDateString();
  return (isToday ? CLOCK.format(date) : `${DAY.format(date)} ${CLOCK.format(date)}`).replaceAll(' ', '\u00a0');
}

/** A text in which no line ends between a number and its unit. */
export const kept = (text) => text.replace(/(\d) (?=(?:ms|s|min|h|d|%)(?!\w))/g, '$1\u00a0');

const AWAY = /^Away .+?(?=[:.]( |$))/;
const OVER = /^(?:Stopped on request|Ended|Rejected|Broken)(?=[:.])/;
/** A verdict with its instant: "Away since 16:08:03: 401." in place of a length, "Stopped on request at 16:08:03." */
export const since = (verdict, at) => kept(!at ? verdict
  : verdict.replace(AWAY, () => `Away since ${clock(at)}`).replace(OVER, (over) => `${over} at ${clock(at)}`));

/** An id with numbers in place of characters that nobody sees, such as those that turn the direction of writing. */
export const visible = (id) =>
  id.replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, (one) => `\\u${one.codePointAt(0).toString(16).padStart(4, '0')}`);

/** How long ago an instant was, by its largest unit: 12 s, 3 h, 2 d; "–" for none. */
export function age(at) {
  if (!at) return '–';
  const seconds = Math.max(0, Math.floor((serverNow() - Date.parse(at)) / 1000));
  const [size, unit] = LENGTHS.find(([size]) => seconds >= size) ?? LENGTHS.at(-1);
  return `${Math.floor(seconds / size)}\u00a0${unit}`;
}

/** Events a second: 0.02, 4.5, 120. */
export const perSecond = (rate) =>
  (rate === null ? '–' : rate < 100 ? rate.toFixed(rate < 0.1 && rate > 0 ? 2 : 1) : number(Math.round(rate)));

/** US dollars; small amounts with as many digits as matter. */
export function dollars(usd) {
  if (usd === 0) return '$0';
  if (usd < 0.0001) return 'less than $0.0001';
  return `$${usd.toFixed(usd < 0.1 ? 4 : 2)}`;
}

const SILENT = { unheard: 'its function fell silent', unrecorded: 'its function ended without a report' };
/** An end or a cause of a gap in words. */
export const words = (name) => SILENT[name] ?? String(name ?? '').replaceAll('_', ' ');
