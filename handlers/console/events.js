// The last events of a stream, the newest first, to search and to export. Invariants: an event's text is shown as text;
// an open event stays open and in its place; events that come while the list is paused are shown when it continues.
//
// Without a key, they come by an EventSource, which a local run and `streamkeeper console` keep open. It cannot send a
// key, so with a key they are requested page by page. While the page is hidden, nothing is open.

import { ask, key, streamPath } from './api.js';
import { element, keyed, text } from './dom.js';
import { pretty } from './pretty.js';
import { clock, number } from './words.js';

const KEPT = 300;
const PAGE = 500;
const PAGES = 10;
const SHORT = 160;
const LONG = 20_000;
const DRAWN_MS = 200;
export const EVERY_MS = 2000;
// After how long an EventSource that was refused is tried again.
const REFUSED_MS = 60_000;

/** The part: `load` reads new events if they do not come by themselves; `stop` ends that. */
export function eventsPart(id) {
  let after = null;
  let events = [];
  let wanted = '';
  let isPaused = false;
  let order = 'events';
  let source = null;
  let refusedAt = -Infinity;
  let fresh = [];
  let drawing = 0;
  let isLoaded = false;
  let hasConnected = true;
  const search = element('input',
    { type: 'search', id: 'find', placeholder: 'Search', autocomplete: 'off', spellcheck: 'false' });
  const pause = element('button', { type: 'button', 'aria-pressed': 'false' }, 'Pause');
  const save = element('button', { type: 'button', disabled: true, onclick: () => exported(id, shownNow()) }, 'Export');
  const count = element('p', { class: 'soft' }, 'Loading …');
  const end = element('p', { class: 'unseen', tabindex: '-1' }, 'End of the events.');
  const past = element('button', { type: 'button', class: 'past', onclick: () => end.focus() }, 'Skip the events');
  const list = element('ul', { class: 'events', 'aria-labelledby': 'events-title' });
  const node = element('section', { class: 'card', 'aria-labelledby': 'events-title' },
    element('div', { class: 'head' }, element('h2', { id: 'events-title' }, 'Last events'),
      element('div', { class: 'row' }, element('label', { for: 'find', class: 'unseen' }, 'Search the last events'),
        search, pause, save)),
    count, past, list, end);

  const shownNow = () => events.filter((one) => !wanted || searched(one).includes(wanted));

  function draw() {
    const shown = shownNow();
    save.disabled = past.hidden = !shown.length;
    keyed(list, shown, (one) => one.position, item,
      (node, one) => text(node.querySelector('time'), clock(one.received_at)));
    const all = number(events.length);
    const none = !isLoaded ? 'Loading …' : hasConnected ? 'No event yet' : 'Never connected, so no event yet';
    if (!isLoaded || !events.length) return text(count, none);
    const held = wanted ? `${number(shown.length)} of ${all} match` : `${all} ${order}`;
    const come = source?.readyState === EventSource.OPEN ? 'live' : 'waiting for the server';
    return text(count, `${held}; ${isPaused ? 'paused' : isOpen() ? come : `refreshed every ${EVERY_MS / 1000} s`}`);
  }

  /** Whether events come by themselves: an EventSource that is not closed reconnects by itself. */
  const isOpen = () => source !== null && source.readyState !== EventSource.CLOSED;

  /** Takes in events, in the order in which they came. */
  function take(those) {
    events = [...those.toReversed(), ...events].slice(0, KEPT);
  }

  /** Makes events come by themselves from `after` on. */
  function follow() {
    source = new EventSource(streamPath(id, `/events${after && `?after=${encodeURIComponent(after)}`}`));
    source.onmessage = ({ data, lastEventId }) => {
      fresh = [...fresh, JSON.parse(data)].slice(-KEPT);
      after = lastEventId;
      drawing ||= setTimeout(show, DRAWN_MS);
    };
    source.onopen = draw;
    source.onerror = () => {
      if (source?.readyState === EventSource.CLOSED) refusedAt = performance.now();
      draw();
    };
  }

  /** Shows the events that have come; while the list is paused they wait. */
  function show() {
    drawing = 0;
    if (isPaused) return;
    take(fresh);
    fresh = [];
    draw();
  }

  function unfollow() {
    source?.close();
    source = null;
  }

  const hidden = () => document.hidden && unfollow();
  document.addEventListener('visibilitychange', hidden);

  search.addEventListener('input', () => {
    wanted = search.value.trim().toLowerCase();
    draw();
  });
  pause.addEventListener('click', () => {
    isPaused = !isPaused;
    pause.setAttribute('aria-pressed', String(isPaused));
    text(pause, isPaused ? 'Go on' : 'Pause');
    if (isPaused) draw();
    else show();
  });

  return {
    node,
    /** Takes a stream's status: whether it has ever connected. */
    know({ coverage }) {
      const before = hasConnected;
      hasConnected = coverage !== null;
      if (!hasConnected) isLoaded = true;
      if (before !== hasConnected) draw();
    },
    stop() {
      unfollow();
      clearTimeout(drawing);
      document.removeEventListener('visibilitychange', hidden);
    },
    async load() {
      if (isPaused || isOpen()) return;
      if (after === null) {
        after = (await ask(streamPath(id, '/latest'))).after ?? '';
        events = []; // between them and the newest some may be missing
      }
      let page;
      for (let pages = 0; pages < PAGES; pages += 1) {
        page = await ask(streamPath(id, `/events?limit=${PAGE}${after && `&after=${encodeURIComponent(after)}`}`));
        if (page.order) break;
        take(page.events);
        after = page.next ?? page.events.at(-1)?.position ?? after;
        if (!page.next) break;
      }
      if (page.order) {
        // Without an order of arrival there are no last events: these are the first by key.
        order = 'events, by key: this stream keeps no order of arrival';
        events = page.events.slice(0, KEPT);
      } else if (page.next) {
        after = null; // Too far behind: continue at the end.
      } else if (!key.get() && node.isConnected && !document.hidden && performance.now() > refusedAt + REFUSED_MS) {
        follow();
      }
      isLoaded = true;
      draw();
    },
  };
}

const encoded = ({ data_base64: bytes }) => bytes && `(bytes in Base64) ${bytes}`;
const elsewhere = ({ dead_letter: why, left_out: where }) => (why
  ? `in the dead-letter queue: ${why}`
  : `too large for an answer, it is in ${where === 'table' ? 'the table' : `the object ${where}`}`);
const body = (one) => one.data ?? (encoded(one) || `(no body here: ${elsewhere(one)})`);
const searched = (one) => `${one.stream ?? ''} ${one.id ?? ''} ${one.name ?? ''} ${one.key} ${body(one)}`.toLowerCase();

function item(one) {
  const full = body(one);
  const details = element('details', {},
    element('summary', {},
      element('time', { datetime: one.received_at }, clock(one.received_at)),
      element('span', { class: 'part' }, one.stream ?? ''),
      element('span', { class: 'name' }, one.name ?? ''),
      element('span', { class: 'body' }, full.slice(0, SHORT) || '(empty)')));
  // The rest is made on opening: most events are never opened.
  details.addEventListener('toggle', () => {
    if (!details.open || details.children.length > 1) return;
    const facts = [
      ['part', one.stream], ['received', clock(one.received_at)], ['id', one.id], ['key', one.key],
      ['position', one.position], ['conflict of', one.conflict_of],
    ];
    const list = element('dl', { class: 'facts' });
    for (const [name, value] of facts) {
      if (value) list.append(element('div', {}, element('dt', {}, name), element('dd', {}, value)));
    }
    details.append(list, ...bodyParts(one, full));
  });
  return element('li', {}, details);
}

/** The body as it came, laid out if it is JSON, and a button that copies it as it came; bytes are copied as Base64. */
function bodyParts({ key, data, data_base64: bytes }, full) {
  const laidOut = pretty(full);
  const shown = element('pre', { tabindex: '0', role: 'region', 'aria-label': `Body of the event ${key}` },
    shortened(laidOut ?? full));
  const choose = (event, content) => {
    for (const one of choices) one.setAttribute('aria-pressed', String(one === event.target));
    text(shown, shortened(content));
  };
  const choices = laidOut === null ? [] : [['Laid out', laidOut], ['As it came', full]].map(([name, content], at) =>
    element('button',
      { type: 'button', 'aria-pressed': String(at === 0), onclick: (event) => choose(event, content) }, name));
  const said = element('span', { class: 'soft', role: 'status' });
  const own = data ?? bytes;
  const copy = element('button', {
    type: 'button', class: 'quiet', hidden: own === undefined, onclick: async () => text(said, await copied(own)),
  }, 'Copy');
  const group = element('div', { class: 'choices', role: 'group', 'aria-label': 'How the body is shown' }, ...choices);
  return [element('div', { class: 'row body-tools' }, group, copy, said), shown];
}

/** Copies a text, and returns the outcome. Only a page that came by TLS, or from this machine, has a clipboard. */
async function copied(full) {
  try {
    await navigator.clipboard.writeText(full);
    return 'Copied.';
  } catch {
    return 'The browser does not allow copying here.';
  }
}

/** Saves these events as a file, a line of JSON each, the oldest first. */
function exported(id, events) {
  const lines = events.toReversed().map((one) => `${JSON.stringify(one)}\n`);
  const url = URL.createObjectURL(new Blob(lines, { type: 'application/x-ndjson' }));
  element('a', { href: url, download: `${id.replace(/[^\w.-]+/g, '-')}.ndjson` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** A very long text ends early. */
function shortened(full) {
  return full.length > LONG ? `${full.slice(0, LONG)}\n… ${number(full.length - LONG)} more characters` : full;
}
