// The figures of a stream: four that show how it does, and behind them those that few people need.

import { element, set, text } from './dom.js';
import { age, clock, counted, dollars, length, number, perSecond } from './words.js';

const FIRST = [['rate', 'Events a second'], ['stored', 'Stored'], ['complete', 'Complete'], ['connected', 'Connected']];
const MORE = [
  ['cursor', 'Cursor'], ['cost', 'Cost so far'], ['duplicates', 'Duplicates refused'], ['letters', 'Dead-lettered'],
];

/** The part: `show` takes a status, `showCost` the cost. */
export function figuresPart() {
  const cells = {};
  const list = (names) => element('dl', { class: 'figures' }, ...names.map(([name, label]) => {
    cells[name] = { value: element('dd', { class: 'value' }, '–'), note: element('dd', { class: 'note' }) };
    return element('div', { class: `figure ${name}` }, element('dt', {}, label), cells[name].value, cells[name].note);
  }));
  const node = element('section', { class: 'card', 'aria-label': 'Figures' }, list(FIRST),
    element('details', {}, element('summary', {}, 'More figures'), list(MORE)));
  const put = (name, value, note = '') => {
    text(cells[name].value, value);
    text(cells[name].note, note);
  };
  set(cells.cursor.value, 'tabindex', 0); // a long one scrolls
  const share = (percent) => `${Math.floor(percent * 100) / 100} %`;

  /** The verdict has what is missing; these are the shares. */
  function showCoverage(coverage) {
    const { since, connected_percent: connected, complete_percent: complete, overlap_ms: overlap } = coverage;
    const { waiting_since_at: waiting, missing, gaps } = coverage;
    const lacking = waiting ? `not stored yet since ${clock(waiting)}; `
      : missing.intervals ? `all but ${length(missing.seconds * 1000)}; `
      : gaps.length ? 'nothing is missing; ' : '';
    put('complete', share(complete), `${lacking}${gaps.length ? counted(gaps.length, 'gap') : 'no gap'}`);
    put('connected', share(connected), `since ${clock(since)}${overlap ? `; overlaps ${length(overlap)}` : ''}`);
  }

  return {
    node,

    show({ counts, coverage, cursor, pace, last_event_at: lastAt, events_per_s: rate, status }) {
      put('rate', perSecond(status === 'running' ? rate : null), paceOf(lastAt, pace));
      const leftOut = counts.left_out ? `; ${number(counts.left_out)} left out` : '';
      const least = counts.at_least || coverage?.reaches_start === false ? 'at least, ' : '';
      put('stored', number(counts.stored), `${least}by ${counted(coverage?.connections ?? 0, 'connection')}${leftOut}`);
      put('duplicates', number(counts.duplicates),
        counts.conflicts ? `${number(counts.conflicts)} with another body` : '');
      put('letters', number(counts.dead_lettered));
      if (coverage) showCoverage(coverage);
      else {
        put('complete', '–');
        put('connected', '–', 'never since it was started');
      }
      put('cursor', cursor?.value ?? '–', cursor ? `saved at ${clock(cursor.saved_at)}` : '');
    },

    showCost({ about_usd: usd, forecast_month_usd: month, parts, rates }) {
      const both = `${dollars(parts.connected_usd)} connected, ${dollars(parts.events_usd)} events`;
      const billed = `${dollars(month)} a month at this rate, as AWS bills ${rates.stage} in ${rates.region}`;
      put('cost', dollars(usd), `an estimate: ${both}; ${billed}`);
    },
  };
}

/** How long ago the last new event came, and how often one usually does. */
function paceOf(lastAt, { usual_every_ms: usual }) {
  const often = usual >= 1000 ? `; usually one every ${length(usual)}` : '';
  return lastAt ? `the last one ${age(lastAt)} ago${often}` : 'no event yet';
}
