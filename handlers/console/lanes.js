// Draws the two lanes of a stream on a line of time whose right edge is now, and the stream as a whole below them:
// connected, overlap, gap. Colours and words are those of `streamkeeper timeline`. Colour is never the only sign: an
// overlap is higher, a failed attempt is a tick, a gap is hatched, one that is not proved complete has an outline, a
// repaired one a line through it. Each mark has a text, and two tables have the same.

import { ask, streamPath } from './api.js';
import { announce, attempt, element, keyed, scrolled, set, svg, text } from './dom.js';
import { CLOCK, clock, counted, length, number, serverNow, setServerTime, words } from './words.js';

const LABEL = 60;
const ROWS = { A: 26, B: 60, stream: 104 };
const HEIGHT = 150;
const LEAST = 2;
// How long after an answer what it showed counts as still so.
const KNOWN_MS = 10_000;
const WINDOWS = [[120, '2 min'], [600, '10 min'], [3600, '1 h']];
const TICKS_S = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800];
const LEGEND = [
  ['wait', 'waiting'], ['claim', 'connecting'], ['failed', 'failed attempt'], ['open', 'connected'],
  ['both', 'overlap'], ['gap', 'gap, delivered later'], ['gap open', 'gap, not proved complete'],
  ['gap lost', 'gap, events lost'], ['gap repaired', 'gap, repaired'],
];

/** The part: `show` takes a status and its timeline, `tick` moves the line of time on. */
export function lanesPart() {
  let data = null;
  let windowMs = 120_000;
  let newest = null;
  let width = 1000;
  const marks = svg('g');
  const none = svg('text', { y: ROWS.B + 14, 'text-anchor': 'middle' });
  const ticks = svg('g', { class: 'ticks' });
  const labels = Object.entries(ROWS).map(([name, y]) =>
    svg('text', { class: 'label', x: LABEL - 12, y: y + 15, 'text-anchor': 'end' },
      name === 'stream' ? 'stream' : `lane ${name}`));
  const described = svg('desc');
  const picture = svg('svg', { class: 'lanes', height: HEIGHT, role: 'img', 'aria-labelledby': 'lanes-title' },
    described, hatch(), ticks, ...labels, marks, none);
  const key = legend();
  const said = element('p', { class: 'handover' }, 'No open connection was handed over yet.');
  const table = scrolled('Connections', ['Lane', 'Connected', 'Until', 'For', 'Ended by', 'Stored', 'Duplicates']);
  const gapTable = scrolled('Gaps', ['From', 'To', 'For', 'After', 'What is missing', 'Repair']);
  const choices = WINDOWS.map(([seconds, name]) => element('button', {
    type: 'button', 'aria-pressed': String(seconds === 120), onclick: (event) => choose(seconds * 1000, event.target),
  }, name));
  const node = element('section', { class: 'card', 'aria-labelledby': 'lanes-title' },
    element('div', { class: 'head' }, element('h2', { id: 'lanes-title' }, 'Lanes'),
      element('div', { class: 'choices', role: 'group', 'aria-label': 'Length of the time line' }, ...choices)),
    picture, key, said,
    element('details', {}, element('summary', {}, 'Connections as a table'), table.node),
    element('details', {}, element('summary', {}, 'Gaps as a table'), gapTable.node));

  function choose(ms, button) {
    windowMs = ms;
    for (const one of choices) set(one, 'aria-pressed', String(one === button));
    draw();
  }

  function draw() {
    if (!data) return;
    // As wide as its place, so that its letters stay as large as the others.
    width = Math.max(240, picture.clientWidth || width);
    // While the server does not answer, it is unknown whether a connection is open: the line of time stands still.
    const now = Math.min(serverNow(), Date.parse(data.to_at) + KNOWN_MS);
    const from = now - windowMs;
    const at = (ms) => LABEL + ((Math.min(now, Math.max(from, ms)) - from) / windowMs) * (width - LABEL);
    const shown = marksOf(data, now).filter((one) => one.to >= from);
    keyed(marks, shown, (one) => one.key, () => svg('rect', {}, svg('title')), (rect, one) => {
      const x = at(one.from);
      set(rect, 'class', one.kind);
      set(rect, 'x', x.toFixed(1));
      set(rect, 'y', one.y);
      set(rect, 'width', Math.max(LEAST, at(one.to) - x).toFixed(1));
      set(rect, 'height', one.height);
      set(rect, 'rx', one.kind.startsWith('gap') ? 0 : Math.min(3, one.height / 2));
      text(rect.firstChild, one.words);
    });
    LEGEND.forEach(([kind], at) => {
      key.children[at].hidden = kind.startsWith('gap') && !shown.some((one) => one.kind === kind);
    });
    text(none, shown.length ? '' : `nothing in the last ${length(windowMs)}`);
    set(none, 'x', (LABEL + width) / 2);
    drawTicks(ticks, windowMs, now, at, width);
  }

  new ResizeObserver(draw).observe(picture);
  return {
    node,
    tick: draw,
    show(status, timeline) {
      data = { ...timeline, gaps: [...timeline.gaps, ...neverConnected(status)] };
      setServerTime(Date.parse(timeline.to_at));
      draw();
      const opened = timeline.connections.filter((one) => one.opened_at);
      const open = opened.filter((one) => one.is_open).map((one) => `lane ${one.lane}`);
      const [calls, gaps] = [counted(opened.length, 'connection'), counted(timeline.gaps.length, 'gap')];
      const failed = counted(timeline.connections.length - opened.length, 'failed attempt');
      const now = `Connected now: ${open.join(' and ') || 'no lane'}`;
      text(described, `${now}. In the last hour ${calls}, ${failed} and ${gaps}.`);
      const sentence = handoverOf(opened);
      if (sentence && sentence !== newest) {
        if (newest !== null) announce(sentence);
        text(said, sentence);
      }
      newest = sentence ?? '';
      table.show(opened.toReversed(), (one) => one.fence, cells);
      gapTable.show(timeline.gaps.toReversed(), gapKey, gapCells,
        (row, gap) => offerRepair(row.lastChild, status.stream, gap, timeline.is_repairable));
    },
  };
}

const cells = (one) => {
  const ms = Date.parse(one.until_at) - Date.parse(one.opened_at);
  const until = one.is_open ? 'now' : clock(one.until_at);
  return [one.lane, clock(one.opened_at), until, length(ms), words(one.ended_by) || '–', number(one.stored),
    number(one.duplicates)];
};

// Two gaps may begin at one instant: the pause after a connection, and a loss that the upstream announced.
export const gapKey = (gap) => `${gap.from_at} ${gap.to_at} ${gap.cause}`;
const HIDES = {
  delivered: 'nothing: all its events came later', open: 'not proved complete yet', lost: 'events are lost',
  repaired: 'nothing: it was repaired', partly: 'a part of it came by repair', failed: 'it could not be repaired yet',
};
const REPAIRABLE = ['open', 'lost', 'partly', 'failed'];

/** A button that starts the repair of a gap in which events may be missing, if the profile has an address for that. */
function offerRepair(cell, stream, gap, isRepairable) {
  if (!gap.to_at || !REPAIRABLE.includes(gap.state)) return cell.replaceChildren();
  if (!isRepairable) return text(cell, 'its profile has no repair');
  if (cell.querySelector('button')) return undefined;
  const times = `from=${encodeURIComponent(gap.from_at)}&to=${encodeURIComponent(gap.to_at)}`;
  const why = element('small');
  const button = element('button', {
    type: 'button',
    'aria-label': `Repair the gap from ${clock(gap.from_at)}`,
    onclick: () => attempt(button, async () => {
      await ask(`${streamPath(stream, '/repair')}?${times}`, 'POST');
      return 'The events that the gap missed are being fetched.';
    }, why),
  }, 'Repair');
  return cell.replaceChildren(button, why);
}

const gapCells = (gap) => {
  const lost = gap.state === 'lost' && gap.events !== null ? `${counted(gap.events, 'event')} lost` : HIDES[gap.state];
  return [clock(gap.from_at), gap.to_at ? clock(gap.to_at) : 'now', length(gap.length_ms), words(gap.cause), lost];
};

/** The time since the start as a gap, for a stream without any answered connection. */
function neverConnected({ coverage, started_at: start, ended_at: end, stop_requested_at: stop }) {
  if (coverage || !start) return [];
  return [{ from_at: start, to_at: end ?? stop, cause: 'the start: never connected', state: 'open' }];
}

/** The last handover as a sentence; null if there was none. */
function handoverOf(opened) {
  for (let index = opened.length - 1; index > 0; index -= 1) {
    const [older, newer] = [opened[index - 1], opened[index]];
    if (older.lane === newer.lane || older.ended_by !== 'taken_over') continue;
    const sharedMs = Date.parse(older.until_at) - Date.parse(newer.opened_at);
    const how = sharedMs < 0 ? ` after a gap of ${length(-sharedMs)}` : `; both were connected for ${length(sharedMs)}`;
    return `Last handover at ${clock(newer.opened_at)}: lane ${newer.lane} took over from lane ${older.lane}${how}.`;
  }
  return null;
}

/** All marks, each with a key that stays its own while it grows. */
function marksOf({ connections, gaps }, now) {
  const marks = [];
  const add = (key, kind, from, to, y, height, said) => marks.push({ key, kind, from, to, y, height, words: said });
  const opened = [];
  for (const one of connections) {
    const row = ROWS[one.lane] ?? ROWS.A;
    const end = one.is_open ? now : Date.parse(one.until_at);
    const start = one.opened_at ? Date.parse(one.opened_at) : end;
    const claimed = one.claimed_at ? Date.parse(one.claimed_at) : start;
    if (start > claimed) {
      const said = `lane ${one.lane}: connecting, ${length(start - claimed)}`;
      add(`c${one.fence}`, 'claim', claimed, start, row + 7, 6, said);
    }
    if (!one.opened_at) {
      const failed = `lane ${one.lane}: failed at ${clock(one.until_at)}, ${words(one.ended_by)}`;
      if (!one.is_open) add(`f${one.fence}`, 'failed', end, end, row, 20, failed);
      continue;
    }
    const ending = one.ended_by ? `, ${words(one.ended_by)}` : '';
    const said = `connected from ${clock(one.opened_at)}, ${length(end - start)}${ending}`;
    add(`o${one.fence}`, 'open', start, end, row + 2, 16, `lane ${one.lane}: ${said}`);
    add(`s${one.fence}`, 'open', start, end, ROWS.stream + 6, 8, `stream: ${said}`);
    opened.push({ ...one, start, end, claimed });
  }
  waits(opened, now).forEach((one) => add(...one));
  let covered = -Infinity;
  for (const one of opened) {
    const end = Math.min(covered, one.end);
    if (end > one.start) {
      add(`b${one.fence}`, 'both', one.start, end, ROWS.stream + 1, 18, `overlap: ${length(end - one.start)}`);
    }
    covered = Math.max(covered, one.end);
  }
  for (const gap of gaps) {
    const from = Date.parse(gap.from_at);
    const to = gap.to_at ? Date.parse(gap.to_at) : now;
    const drawn = { delivered: '', partly: 'open', failed: 'open' }[gap.state] ?? gap.state;
    const kind = `gap ${drawn}`.trim();
    add(`g${gapKey(gap)}`, kind, from, to, ROWS.stream + 1, 22,
      `gap: ${length(to - from)}, after ${words(gap.cause)}; ${HIDES[gap.state]}`);
  }
  return marks;
}

/** Where a lane waits: from its connection's end to its next claim, and until now while the other lane is connected. */
function waits(opened, now) {
  const marks = [];
  for (const lane of ['A', 'B']) {
    const own = opened.filter((one) => one.lane === lane);
    const isHeld = opened.some((one) => one.is_open);
    const first = opened[0];
    if (first && own[0] !== first && (own[0] || isHeld)) {
      const to = own[0]?.claimed ?? now;
      marks.push([`w${lane}`, 'wait', first.start, to, ROWS[lane] + 8, 4, `lane ${lane}: waiting`]);
    }
    own.forEach((one, index) => {
      const to = own[index + 1]?.claimed ?? (isHeld && !one.is_open ? now : null);
      if (to && to > one.end) {
        const said = `lane ${lane}: waiting, ${length(to - one.end)}`;
        marks.push([`w${one.fence}`, 'wait', one.end, to, ROWS[lane] + 8, 4, said]);
      }
    });
  }
  return marks;
}

function drawTicks(parent, windowMs, now, at, width) {
  const step = (TICKS_S.find((one) => windowMs / 1000 / one <= (width - LABEL) / 90) ?? 1800) * 1000;
  const first = Math.ceil((now - windowMs) / step) * step;
  const times = [];
  for (let ms = first; ms <= now; ms += step) times.push(ms);
  const make = () => svg('g', {}, svg('line', { y1: 16, y2: HEIGHT - 18 }),
    svg('text', { y: HEIGHT - 4, 'text-anchor': 'middle' }));
  keyed(parent, times, String, make, (group, ms) => {
    const x = at(ms);
    set(group.firstChild, 'x1', x.toFixed(1));
    set(group.firstChild, 'x2', x.toFixed(1));
    set(group.lastChild, 'x', Math.min(width - 34, Math.max(LABEL + 34, x)).toFixed(1));
    text(group.lastChild, CLOCK.format(ms));
  });
}

/** The hatching of gaps; for repaired ones it has a line through it. */
function hatch() {
  const pattern = (id, ...more) =>
    svg('pattern', { id, width: 6, height: 22, y: ROWS.stream + 1, patternUnits: 'userSpaceOnUse' },
    svg('rect', { class: 'hatch-ground', width: 6, height: 22 }),
    svg('path', { class: 'hatch-line', d: 'M-2,2l4,-4M0,6l6,-6M0,12l6,-6M0,18l6,-6M0,24l6,-6M4,26l4,-4' }), ...more);
  return svg('defs', {}, pattern('hatch'),
    pattern('hatch-repaired', svg('line', { class: 'repair-line', x2: 6, y1: 11, y2: 11 })));
}

function legend() {
  const each = LEGEND.map(([kind, name]) => element('li', {},
    svg('svg', { viewBox: '0 0 24 12', width: 24, height: 12, 'aria-hidden': 'true' },
      svg('rect', {
        class: kind, x: kind === 'failed' ? 11 : 1, y: { wait: 4, claim: 3 }[kind] ?? 1,
        width: kind === 'failed' ? LEAST : 22, height: { wait: 4, claim: 6 }[kind] ?? 10,
        rx: kind.startsWith('gap') ? 0 : 2,
      })),
    name));
  return element('ul', { class: 'legend' }, ...each);
}
