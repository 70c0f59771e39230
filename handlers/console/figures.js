// The figures of a stream: events a second, stored, duplicates, connected, complete, missing, cursor, and about what it has cost.

import { element, text } from './dom.js';
import { clock, counted, dollars, length, number } from './words.js';

const OVER_MS = 10_000;
const NAMES = [
  ['connected', 'Connected'], ['complete', 'Complete'], ['missing', 'Missing'], ['rate', 'Events a second'],
  ['stored', 'Stored'], ['duplicates', 'Duplicates turned away'], ['letters', 'Dead-lettered'], ['cursor', 'Cursor'],
  ['cost', 'Cost so far'],
];

/** The part: `show` takes a status and a timeline, `showCost` the cost. */
export function figuresPart() {
  const cells = {};
  const list = element('dl', { class: 'figures' });
  for (const [name, label] of NAMES) {
    cells[name] = { value: element('dd', { class: 'value' }, '–'), note: element('dd', { class: 'note' }) };
    list.append(element('div', { class: `figure ${name}` }, element('dt', {}, label), cells[name].value, cells[name].note));
  }
  const put = (name, value, note = '') => {
    text(cells[name].value, value);
    text(cells[name].note, note);
  };
  const rate = rateOf();
  const share = (percent) => `${Math.floor(percent * 100) / 100} %`;

  /** Three figures, none of which is made of another. */
  function showCoverage({ since, connected_percent: connected, complete_percent: complete, missing, gaps, overlap_ms: overlap }) {
    const delivered = gaps.filter((gap) => gap.state === 'delivered').length;
    const lost = missing.events === null ? 'nobody knows how many events' : counted(missing.events, 'event');
    put('connected', share(connected), `since ${clock(since)}; overlaps ${length(overlap)}`);
    put('complete', share(complete), gaps.length ? `${counted(gaps.length, 'gap')}, ${number(delivered)} delivered later` : 'no gap');
    put('missing', missing.intervals ? counted(missing.intervals, 'gap') : 'nothing',
      missing.intervals ? `${length(missing.seconds * 1000)}; ${lost}` : '');
  }

  return {
    node: element('section', { class: 'card', 'aria-label': 'Figures' }, list),

    show({ counts, coverage, cursor, pace, last_event_at: lastAt }, timeline) {
      const atLeast = counts.at_least ? 'at least; ' : '';
      const perSecond = rate(timeline);
      put('rate', perSecond === null ? '–' : perSecond.toFixed(perSecond < 100 ? 1 : 0), paceOf(lastAt, pace));
      const leftOut = counts.left_out ? `; ${number(counts.left_out)} left out` : '';
      put('stored', number(counts.stored), `${atLeast}${counted(counts.connections, 'connection')}${leftOut}`);
      put('duplicates', number(counts.duplicates), counts.conflicts ? `${number(counts.conflicts)} with another body` : '');
      put('letters', number(counts.dead_lettered));
      if (coverage) showCoverage(coverage);
      else for (const name of ['connected', 'complete', 'missing']) put(name, '–');
      put('cursor', cursor?.value ?? '–', cursor ? `saved at ${clock(cursor.saved_at)}` : '');
    },

    showCost({ about_usd: usd, parts, rates }) {
      const share = `about; ${dollars(parts.connected_usd)} connected, ${dollars(parts.events_usd)} events`;
      put('cost', dollars(usd), `${share}; as AWS bills the stage ${rates.stage} in ${rates.region}`);
    },
  };
}

/** When the last new event came, and how often one usually does. */
function paceOf(lastAt, { usual_every_ms: usual }) {
  const often = usual === null ? '' : `, usually one every ${length(usual)}`;
  return lastAt ? `the last 10 s; the last new one at ${clock(lastAt)}${often}` : 'the last 10 s';
}

/** Events stored a second, from how the connections' counts grow; null before that is known. */
function rateOf() {
  const seen = [];
  let total = 0;
  let before = null;
  return ({ connections, to_at: at }) => {
    const counts = new Map(connections.map((one) => [one.fence, one.stored]));
    if (before) {
      for (const [fence, stored] of counts) total += Math.max(0, stored - (before.get(fence) ?? 0));
    }
    before = counts;
    const now = Date.parse(at);
    seen.push([now, total]);
    while (seen.length > 2 && now - seen[1][0] >= OVER_MS) seen.shift();
    const [first, stored] = seen[0];
    if (now > first) return ((total - stored) * 1000) / (now - first);
    // At first the open connection's own count is all that is known.
    const open = connections.findLast((one) => one.is_open);
    const openMs = open ? now - Date.parse(open.opened_at) : 0;
    return openMs > 1000 ? (open.stored * 1000) / openMs : null;
  };
}
