// The streams that share a stream's function: each with its gaps of the last hour, on one line of time. The lanes above
// are those of the function, so they are drawn once. It makes requests only while it is open. Invariant: it requests
// MOST streams at most, and counts the others.

import { ask, streamPath } from './api.js';
import { attempt, element, keyed, outcome, scrolled, set, svg, text } from './dom.js';
import { gapKey } from './lanes.js';
import { clock, counted, length, number, serverNow, visible, words } from './words.js';

const HOUR_MS = 3_600_000;
const MOST = 100;
const PAGE = 1000;
const WIDTH = 300;

/** The part of the stream `id`; `show` takes its status. */
export function groupPart(id) {
  let group = '';
  const table = scrolled('Streams of the function', ['Stream', 'Status', 'Gaps', 'In all', 'The last hour']);
  const said = outcome();
  const summary = element('summary');
  const again = element('button', { type: 'button', onclick: () => load() }, 'Refresh');
  const details = element('details', { ontoggle: () => details.open && load() }, summary, said, table.node, again);
  const node = element('section', { class: 'card', 'aria-label': 'Function', hidden: true }, details);

  // Nothing is requested for a view that was left.
  const isRead = () => details.open && details.isConnected;
  const load = () => group && !again.disabled && attempt(again, async () => {
    const members = await membersOf(group, isRead);
    const now = serverNow();
    const since = `limit=1000&from=${encodeURIComponent(new Date(now - HOUR_MS).toISOString())}`;
    const shown = [];
    for (const one of members.slice(0, MOST)) {
      const { gaps, next } = await ask(`${streamPath(one.stream, '/gaps')}?${since}`);
      shown.push({ ...one, gaps, more: next === null ? '' : ' or more' });
      if (!isRead()) return '';
      text(said, `${number(shown.length)} of ${number(Math.min(MOST, members.length))} read …`);
    }
    shown.sort((a, b) => sum(b.gaps) - sum(a.gaps));
    keyed(table.rows, shown, (one) => one.stream, row, (each, one) => update(each, one, now));
    const running = members.filter((one) => one.status === 'running').length;
    const more = members.length > MOST ? ` The first ${MOST} are shown.` : '';
    const at = clock(new Date(now).toISOString());
    return `${running} of ${counted(members.length, 'stream')} running, as of ${at}.${more}`;
  }, said, 'Loading …');

  return {
    node,
    show(status) {
      group = status.group ?? '';
      node.hidden = !group;
      text(summary, `It shares a function with other streams (group ${group})`);
    },
  };

  function row(one) {
    const name = one.stream === id
      ? visible(id)
      : element('a', { href: `#/streams/${encodeURIComponent(one.stream)}` }, visible(one.stream));
    const cells = ['Status', 'Gaps', 'In all'].map((each) => element('td', { role: 'cell', 'data-name': each }));
    return element('tr', { role: 'row' }, element('th', { scope: 'row', role: 'rowheader' }, name), ...cells,
      element('td', { role: 'cell' },
        svg('svg', { class: 'lanes', viewBox: `0 0 ${WIDTH} 16`, width: WIDTH, height: 16, role: 'img' }, svg('g'))));
  }
}

const sum = (gaps) => gaps.reduce((all, gap) => all + gap.length_ms, 0);

async function membersOf(group, isRead) {
  const members = [];
  let after = '';
  do {
    const page = await ask(`connections?limit=${PAGE}${after && `&after=${encodeURIComponent(after)}`}`);
    members.push(...page.streams.filter((one) => one.group === group));
    after = page.next;
  } while (after && isRead());
  return members;
}

function update(node, one, now) {
  const [, status, count, all, drawn] = node.children;
  text(status, one.status);
  text(count, `${number(one.gaps.length)}${one.more}`);
  text(all, one.gaps.length ? length(sum(one.gaps)) : '–');
  const picture = drawn.firstChild;
  set(picture, 'aria-label', `${counted(one.gaps.length, 'gap')} in the last hour`);
  const at = (instant) => (Math.max(0, (instant ? Date.parse(instant) : now) - now + HOUR_MS) / HOUR_MS) * WIDTH;
  keyed(picture.firstChild, one.gaps, gapKey,
    () => svg('rect', { class: 'gap', y: 0, height: 16 }, svg('title')), (rect, gap) => {
    const x = at(gap.from_at);
    set(rect, 'x', x.toFixed(1));
    set(rect, 'width', Math.max(2, at(gap.to_at) - x).toFixed(1));
    text(rect.firstChild, `gap: ${length(gap.length_ms)} from ${clock(gap.from_at)}, after ${words(gap.cause)}`);
  });
}
