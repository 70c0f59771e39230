// All streams at a glance, the worst first: status, pace, open gaps, and what is wrong.
// Invariants: a row is made once, and only its changes are written; at most PER rows are on the page. Once all streams
// are there, a turn requests one page of the API, so its cost does not grow with their number; an unchanged page is a
// 304.

import { ask, repeat } from './api.js';
import { element, keyed, set, text } from './dom.js';
import { startForm } from './start.js';
import { STATUSES, age, clock, kept, length, number, perSecond, visible } from './words.js';

const PAGE = 100;
const PER = 50;
const EVERY_MS = 2000;
// After how long without a turn, in a hidden tab, all pages are requested at once.
const OLD_MS = 60_000;
const COLUMNS = ['Stream', 'Status', 'Events/s', 'Last event', 'Open gaps', 'Sink lag', 'Why'];
const WORST_FIRST = [
  'broken', 'rejected', 'unknown', 'reconnecting', 'unwell', 'starting', 'stopping', 'running', 'ended', 'stopped',
];
const RANKS = new Map(WORST_FIRST.map((status, rank) => [status, rank]));

/** Shows the streams in `parent`; the view has `stop`. */
export function streamsView(parent, server) {
  let streams = [];
  const pages = []; // the API's answers
  let turn = 0;
  let turnedAt = -Infinity;
  const known = new Map();
  let wanted = '';
  let status = '';
  let first = 0;
  const search = element('input', { type: 'search', id: 'search', autocomplete: 'off', spellcheck: 'false' });
  const chips = element('div', { class: 'chips', role: 'group', 'aria-label': 'Show only one status' });
  const rows = element('tbody', { role: 'rowgroup' });
  const nothing = element('p', { class: 'empty' }, 'Loading …');
  const table = element('table', { class: 'streams', role: 'table', hidden: true },
    element('caption', { class: 'unseen' }, 'Streams'),
    element('thead', { role: 'rowgroup' }, element('tr', { role: 'row' }, ...COLUMNS.map(
      (name) => element('th', { scope: 'col', role: 'columnheader' }, name)))),
    rows);
  const place = element('p', { role: 'status', class: 'soft' });
  const [before, after] = ['Previous', 'Next'].map((name, next) => element('button', {
    type: 'button', onclick: () => { first += next ? PER : -PER; draw(); },
  }, name));
  const paging = element('div', { class: 'paging', hidden: true }, place, before, after);
  const begin = startForm(() => loop.now());
  parent.append(
    element('div', { class: 'title' }, element('h1', {}, 'Streams'), chips),
    element('div', { class: 'tools' },
      element('div', { class: 'field' }, element('label', { for: 'search' }, 'Search'), search), begin.form),
    element('section', { class: 'card table', 'aria-label': 'Streams' }, nothing, begin.offers, table, paging),
  );

  function draw() {
    const found = streams.filter((one) => matches(one, wanted));
    drawChips(found);
    const shown = found.filter((one) => !status || one.status === status)
      .sort((a, b) => rank(a) - rank(b) || (a.stream < b.stream ? -1 : 1));
    first = Math.max(0, Math.min(first, Math.floor((shown.length - 1) / PER) * PER));
    keyed(rows, shown.slice(first, first + PER), (one) => one.stream, row, update);
    const isAll = pages.at(-1)?.next === null;
    const [from, to] = [first + 1, first + PER].map((at) => number(Math.min(at, shown.length)));
    text(place, `${from} to ${to} of ${number(shown.length)}${isAll ? '' : '; loading …'}`);
    paging.hidden = isAll && shown.length <= PER;
    before.disabled = first === 0;
    after.disabled = first + PER >= shown.length;
    table.hidden = shown.length === 0;
    nothing.hidden = shown.length > 0 || !pages.length;
    begin.offers.hidden = streams.length > 0 || !isAll;
    text(nothing, streams.length ? 'No stream matches.' : 'No stream was started yet.');
  }

  /** A button for each status, with how many matching streams have it; if pressed, it hides the others. */
  function drawChips(found) {
    const counts = Object.keys(STATUSES).map((name) => [name, found.filter((one) => one.status === name).length])
      .filter(([name, count]) => count > 0 || name === status);
    const make = ([name]) => element('button', {
      type: 'button', class: 'status', 'data-kind': STATUSES[name][2],
      onclick: () => { status = status === name ? '' : name; first = 0; draw(); },
    });
    keyed(chips, counts, ([name]) => name, make, (chip, [name, count]) => {
      set(chip, 'aria-pressed', String(status === name));
      text(chip, `${STATUSES[name][1]} ${number(count)} ${STATUSES[name][0].toLowerCase()}`);
    });
  }

  /** Renews the next page, and the following ones while they begin elsewhere than before. */
  async function load() {
    const isOld = performance.now() - turnedAt > OLD_MS;
    let at = isOld ? 0 : turn;
    let old;
    let page;
    do {
      const behind = at === 0 ? '' : pages[at - 1].next;
      page = await ask(`connections?limit=${PAGE}${behind && `&after=${encodeURIComponent(behind)}`}`, 'GET', known);
      if (!parent.isConnected) return;
      server.answered();
      old = pages[at];
      pages[at] = page;
      at += 1;
      // What follows begins elsewhere, so it is requested by other paths.
      if (old && page.next !== old.next) known.clear();
      // The first time, what has been read is shown at once.
      if (!old) show();
    } while (page.next !== null && (isOld || page.next !== old?.next));
    if (page.next === null) pages.length = at;
    turn = at % pages.length;
    turnedAt = performance.now();
    show();
  }

  function show() {
    streams = pages.flatMap((page) => page.streams);
    draw();
  }

  search.addEventListener('input', () => {
    wanted = search.value.trim().toLowerCase();
    first = 0;
    draw();
  });
  const loop = repeat(load, EVERY_MS, server.failed);
  begin.load().catch(() => {}); // The names of profiles are only a help; the list itself shows failures.
  return { stop: loop.stop };
}

const matches = ({ stream, status, verdict, group }, wanted) =>
  `${stream} ${status} ${verdict} ${group ?? ''}`.toLowerCase().includes(wanted);
const rank = (one) => RANKS.get(one.status === 'running' && (one.reason || one.open_gaps) ? 'unwell' : one.status) ?? 0;
const why = (one) => (one.status === 'stopped' || one.status === 'stopping' ? '' : (one.reason ?? ''));

function row(one) {
  const anchor = element('a', { href: `#/streams/${encodeURIComponent(one.stream)}`, title: visible(one.stream) },
    visible(one.stream));
  const cell = (name, ...children) => element('td', { role: 'cell', 'data-name': name }, ...children);
  return element('tr', { role: 'row' },
    element('th', { scope: 'row', role: 'rowheader' }, anchor, element('span', { class: 'soft' })),
    cell('', element('span', { class: 'status' }), element('span', { class: 'since' })),
    ...COLUMNS.slice(2, 6).map((name) => cell(name)), element('td', { class: 'why', role: 'cell' }));
}

function update(node, one) {
  const [head, status, rate, last, gaps, lag, reason] = node.children;
  text(head.lastChild, one.group ? `group ${one.group}` : '');
  showStatus(status.firstChild, one.status);
  // The connections that a list reads may not go back to the last pause.
  const since = one.since_at ?? one.since_before_at;
  text(status.lastChild, since ? `for ${one.since_at ? '' : 'over '}${age(since)}` : '');
  set(status.lastChild, 'title', since && `since ${one.since_at ? '' : 'before '}${clock(since)}`);
  text(rate, one.status === 'running' ? perSecond(one.events_per_s) : '–');
  text(last, one.last_event_at ? `${age(one.last_event_at)} ago` : '–');
  set(last, 'title', one.last_event_at && clock(one.last_event_at));
  const more = one.open_gaps_at_least;
  text(gaps, one.open_gaps ? `${number(one.open_gaps)}${more ? ' or more' : ''}` : more ? 'none lately' : '–');
  set(gaps, 'title', more && 'in its last four connections');
  text(lag, one.lag_ms === null ? '–' : length(one.lag_ms));
  for (const cell of [rate, last, gaps, lag]) set(cell, 'data-none', /^(–|none lately)$/.test(cell.textContent));
  text(reason, kept(why(one)));
}

/** Shows a status as its mark and its word. */
export function showStatus(node, status) {
  const [word, mark, kind] = STATUSES[status] ?? [status, '?', 'warn'];
  text(node, `${mark} ${word}`);
  set(node, 'data-kind', kind);
}
