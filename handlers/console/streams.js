// All streams at a glance: their status, since when, and why one is not connected; a search, and a form to start one.
// Invariants: a row is made once, and only what changes in it is written: a thousand rows stay quick. Once all are there a
// turn asks for one page of them, so what it costs does not grow with their number, and a page that is as it was is neither
// sent nor read again.

import { ask, repeat, streamPath } from './api.js';
import { announce, element, keyed, set, text } from './dom.js';
import { STATUSES, clock, number } from './words.js';

const PAGE = 100;
const EVERY_MS = 2000;
// After how long without a turn, in a hidden tab, all pages are asked for at once.
const OLD_MS = 30_000;

/** Shows the streams in `parent`; the view has `stop`. */
export function streamsView(parent, server) {
  let streams = [];
  const pages = []; // the API's answers
  let turn = 0;
  let turnedAt = -Infinity;
  const known = new Map();
  let wanted = '';
  const search = element('input', { type: 'search', id: 'search', autocomplete: 'off', spellcheck: 'false' });
  const counts = element('p', { class: 'counts', role: 'status' });
  const rows = element('tbody');
  const nothing = element('p', { class: 'empty', hidden: true });
  const table = element('table', { class: 'streams' },
    element('caption', { class: 'unseen' }, 'Streams'),
    element('thead', {}, element('tr', {}, ...['Stream', 'Status', 'Since', 'Lane', 'Verdict'].map(
      (name) => element('th', { scope: 'col' }, name)))),
    rows);
  const begin = startForm(() => loop.now());
  parent.append(
    element('div', { class: 'title' }, element('h1', {}, 'Streams'), counts),
    element('div', { class: 'tools' },
      element('div', { class: 'field' }, element('label', { for: 'search' }, 'Search'), search), begin.form),
    element('section', { class: 'card table', 'aria-label': 'Streams' }, nothing, table),
  );

  function draw() {
    const shown = streams.filter((one) => matches(one, wanted));
    keyed(rows, byFunction(shown), (one) => one.stream, row, update);
    const all = Object.entries(STATUSES)
      .map(([status, [word, mark]]) => [streams.filter((one) => one.status === status).length, word, mark])
      .filter(([count]) => count > 0);
    const said = all.map(([count, word, mark]) => `${mark} ${number(count)} ${word.toLowerCase()}`).join('   ');
    text(counts, wanted ? `${number(shown.length)} of ${number(streams.length)} shown` : said);
    nothing.hidden = shown.length > 0;
    table.hidden = shown.length === 0;
    text(nothing, streams.length ? 'No stream matches the search.' : 'No stream was started yet. Start one above.');
  }

  /** Renews the next page, and goes on while the one that follows begins elsewhere than before. */
  async function load() {
    const isOld = performance.now() - turnedAt > OLD_MS;
    let at = isOld ? 0 : turn;
    let isNew = false;
    let before;
    let page;
    do {
      const after = at === 0 ? '' : pages[at - 1].next;
      page = await ask(`connections?limit=${PAGE}${after && `&after=${encodeURIComponent(after)}`}`, 'GET', known);
      if (isOver) return;
      before = pages[at];
      pages[at] = page;
      at += 1;
      isNew ||= page !== before;
      // What follows begins elsewhere, so it is asked for by other paths.
      if (before && page.next !== before.next) known.clear();
      // The first time, what is there is shown at once.
      if (!before) show();
    } while (page.next !== null && (isOld || page.next !== before?.next));
    if (page.next === null) pages.length = at;
    turn = at % pages.length;
    turnedAt = performance.now();
    server.answered();
    if (isNew) show();
  }

  function show() {
    streams = pages.flatMap((page) => page.streams);
    draw();
  }

  search.addEventListener('input', () => {
    wanted = search.value.trim().toLowerCase();
    draw();
  });
  let isOver = false;
  const loop = repeat(load, EVERY_MS, server.failed);
  begin.load().catch(() => {}); // the names of profiles are a help; the list itself says what fails
  return {
    stop() {
      isOver = true;
      loop.stop();
    },
  };
}

const matches = (one, wanted) => `${one.stream} ${one.status} ${one.verdict}`.toLowerCase().includes(wanted);

/** The streams alone, then those that share a function, each group behind a row of its own. */
function byFunction(shown) {
  const groups = new Map();
  for (const one of shown) {
    if (one.group && !groups.has(one.group)) groups.set(one.group, []);
    if (one.group) groups.get(one.group).push(one);
  }
  if (!groups.size) return shown;
  // No stream's id begins as a group's does.
  const inOrder = [...groups].sort(([a], [b]) => a.length - b.length || (a < b ? -1 : 1));
  return [...shown.filter((one) => !one.group), ...inOrder.flatMap(([group, members]) => [{ stream: group, members }, ...members])];
}

function row(one) {
  if (one.members) return element('tr', { class: 'group' }, element('td', { colspan: 5 }));
  const anchor = element('a', { href: `#/streams/${encodeURIComponent(one.stream)}` }, one.stream);
  return element('tr', {}, element('th', { scope: 'row' }, anchor),
    element('td', {}, element('span', { class: 'status' })), element('td'), element('td'), element('td', { class: 'why' }));
}

function update(node, one) {
  if (one.members) {
    const running = one.members.filter((each) => each.status === 'running').length;
    text(node.firstChild, `Group ${one.stream}: ${number(one.members.length)} streams in one function, ${number(running)} running`);
    return;
  }
  const [, status, since, lane, verdict] = node.children;
  showStatus(status.firstChild, one.status);
  text(since, clock(one.since_at ?? one.started_at));
  text(lane, one.holder?.lane ?? '–');
  text(verdict, one.verdict);
  verdict.title = one.last_event_at ? `The last new event came at ${clock(one.last_event_at)}` : '';
}

/** Shows a status as its mark and its word. */
export function showStatus(node, status) {
  const [word, mark, kind] = STATUSES[status] ?? [status, '?', 'warn'];
  text(node, `${mark} ${word}`);
  set(node, 'data-kind', kind);
}

/** The form that starts a stream; `load` reads the names of the profiles. */
function startForm(started) {
  const list = element('datalist', { id: 'profiles' });
  const field = element('input', {
    id: 'start', list: 'profiles', required: true, maxlength: 256, autocomplete: 'off', spellcheck: 'false', placeholder: 'demo',
  });
  const problem = element('p', { class: 'problem', role: 'alert' });
  const button = element('button', { type: 'submit', class: 'main' }, 'Start');
  const form = element('form', {
    class: 'field start',
    onsubmit: async (event) => {
      event.preventDefault();
      const id = field.value.trim();
      button.disabled = true;
      text(problem, '');
      try {
        await ask(streamPath(id), 'POST');
        announce(`The stream ${id} is starting.`);
        field.value = '';
        started();
        location.hash = `#/streams/${encodeURIComponent(id)}`;
      } catch (failure) {
        text(problem, failure.message);
      } finally {
        button.disabled = false;
      }
    },
  }, element('label', { for: 'start' }, 'Start a stream'),
  element('div', { class: 'row' }, field, button), list, problem);
  return {
    form,
    async load() {
      const { profiles } = await ask('./');
      list.replaceChildren(...(profiles ?? []).map((name) => element('option', { value: name })));
    },
  };
}
