// The last events of a stream, the newest first, searchable. Invariants: an event's text is shown as text; one that is
// read stays open and where it is; what comes while the list is paused is shown when it goes on.
//
// Where no key is asked for, they come by an EventSource, which a local run and `streamkeeper console` keep open; it cannot
// send a key, so with one they are asked for page after page. While the page is hidden nothing is open.

import { ask, key, streamPath } from './api.js';
import { element, keyed, text } from './dom.js';
import { clock, number } from './words.js';

const KEPT = 300;
const PAGE = 500;
const PAGES = 10;
const SHORT = 160;
const LONG = 20_000;
const DRAWN_MS = 200;
export const EVERY_MS = 2000;
// After how long one that was refused is tried again.
const REFUSED_MS = 60_000;

/** The part: `load` reads what has come since, where it does not come by itself; `stop` ends that. */
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
  let isOver = false;
  const search = element('input', { type: 'search', id: 'find', autocomplete: 'off', spellcheck: 'false' });
  const pause = element('button', { type: 'button', 'aria-pressed': 'false' }, 'Pause');
  const count = element('p', { class: 'soft' });
  const list = element('ul', { class: 'events', 'aria-labelledby': 'events-title' });
  const node = element('section', { class: 'card', 'aria-labelledby': 'events-title' },
    element('div', { class: 'head' }, element('h2', { id: 'events-title' }, 'Last events'),
      element('div', { class: 'row' }, element('label', { for: 'find', class: 'unseen' }, 'Search the last events'), search, pause)),
    count, list);
  search.placeholder = 'Search';

  function draw() {
    const shown = events.filter((one) => !wanted || searched(one).includes(wanted));
    keyed(list, shown, (one) => one.position, item, () => {});
    const all = number(events.length);
    const held = events.length ? (wanted ? `${number(shown.length)} of ${all} match` : `${all} ${order}`) : 'No event is stored yet';
    text(count, `${held}; ${isPaused ? 'paused' : isOpen() ? 'as they come' : `asked for every ${EVERY_MS / 1000} s`}`);
  }

  /** Whether they come by themselves: an EventSource that is not closed comes again by itself. */
  const isOpen = () => source !== null && source.readyState !== EventSource.CLOSED;

  /** Takes in events, in the order in which they came. */
  function take(those) {
    events = [...those.toReversed(), ...events].slice(0, KEPT);
  }

  /** Has events come by themselves from `after` on. */
  function follow() {
    source = new EventSource(streamPath(id, `/events${after && `?after=${encodeURIComponent(after)}`}`));
    source.onmessage = ({ data, lastEventId }) => {
      fresh = [...fresh, JSON.parse(data)].slice(-KEPT);
      after = lastEventId;
      drawing ||= setTimeout(show, DRAWN_MS);
    };
    source.onerror = () => {
      if (source?.readyState === EventSource.CLOSED) refusedAt = performance.now();
    };
  }

  /** Shows what has come; while the list is paused that waits. */
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
    stop() {
      isOver = true;
      unfollow();
      clearTimeout(drawing);
      document.removeEventListener('visibilitychange', hidden);
    },
    async load() {
      if (isPaused || isOpen()) return;
      if (after === null) after = (await ask(streamPath(id, '/latest'))).after ?? '';
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
        after = null; // too far behind: go on at the end
      } else if (!key.get() && !isOver && !document.hidden && performance.now() > refusedAt + REFUSED_MS) {
        follow();
      }
      draw();
    },
  };
}

const body = (one) => one.data ?? (one.data_base64 ? `(bytes in Base64) ${one.data_base64}` : `(no body here: ${one.dead_letter ?? one.left_out})`);
const searched = (one) => `${one.id ?? ''} ${one.name ?? ''} ${one.key} ${body(one)}`.toLowerCase();

function item(one) {
  const full = body(one);
  const details = element('details', {},
    element('summary', {},
      element('time', { datetime: one.received_at }, clock(one.received_at)),
      element('span', { class: 'name' }, one.name ?? ''),
      element('span', { class: 'body' }, full.slice(0, SHORT))));
  // The rest is made when it is asked for: most events are never opened.
  details.addEventListener('toggle', () => {
    if (!details.open || details.children.length > 1) return;
    const facts = [['received', one.received_at], ['id', one.id], ['key', one.key], ['position', one.position], ['conflict of', one.conflict_of]];
    const list = element('dl', { class: 'facts' });
    for (const [name, value] of facts) {
      if (value) list.append(element('div', {}, element('dt', {}, name), element('dd', {}, value)));
    }
    details.append(list, element('pre', { tabindex: '0', role: 'region', 'aria-label': 'Body of the event' }, shortened(full)));
  });
  return element('li', {}, details);
}

/** The text as it came, for a number of JSON that is read and written again may be another; a very long one ends early. */
function shortened(full) {
  return full.length > LONG ? `${full.slice(0, LONG)}\n… ${number(full.length - LONG)} more characters` : full;
}
