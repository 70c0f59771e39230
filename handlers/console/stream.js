// One stream: its status and why, figures, lanes, events, dead letters, machine and cost; it is started and stopped here.
// Invariants: nothing is started or stopped without a question; a part that fails leaves the others as they are.

import { ask, repeat, streamPath } from './api.js';
import { announce, confirmed, element, text } from './dom.js';
import { deadLettersPart, deliveryPart } from './delivery.js';
import { EVERY_MS, eventsPart } from './events.js';
import { figuresPart } from './figures.js';
import { graphPart } from './graph.js';
import { groupPart } from './group.js';
import { lanesPart } from './lanes.js';
import { showStatus } from './streams.js';
import { HELD, clock } from './words.js';

const MACHINE_MS = 3000;
const COST_MS = 30_000;

/** Shows the stream `id` in `parent`; the view has `stop`. */
export function streamView(parent, server, id) {
  const badge = element('span', { class: 'status' });
  const verdict = element('p', { class: 'reason' });
  const start = element('button', { type: 'button', class: 'main', hidden: true, onclick: () => change('POST') }, 'Start');
  const stop = element('button', { type: 'button', hidden: true, onclick: () => change('DELETE') }, 'Stop');
  const problem = element('p', { class: 'problem', role: 'alert' });
  const trouble = element('section', { class: 'card trouble', 'aria-labelledby': 'why', hidden: true });
  const figures = figuresPart();
  const lanes = lanesPart();
  const group = groupPart(id);
  const events = eventsPart(id);
  const letters = deadLettersPart(id);
  const delivery = deliveryPart();
  const graph = graphPart();
  const tagged = new Map();
  parent.append(
    element('nav', { 'aria-label': 'Place' }, element('a', { href: '#/' }, '← Streams')),
    element('div', { class: 'title' },
      element('h1', {}, id), badge, element('div', { class: 'actions' }, start, stop)),
    verdict, problem, trouble, figures.node, lanes.node, group.node, events.node, delivery.node,
    letters.node, graph.node,
  );
  let known = null;

  async function load() {
    const [status, timeline] = await Promise.all([ask(streamPath(id)), ask(streamPath(id, '/timeline'))]).catch(missing);
    server.answered();
    if (!status) return;
    if (known && known !== status.status) announce(`The stream ${id} is ${status.status}.`);
    known = status.status;
    showStatus(badge, status.status);
    text(verdict, status.verdict);
    start.hidden = HELD.includes(status.status);
    stop.hidden = !HELD.includes(status.status) || status.status === 'stopping';
    showTrouble(trouble, status);
    figures.show(status, timeline);
    lanes.show(status, timeline);
    group.show(status);
    letters.count(status.counts.dead_lettered);
    delivery.show(status);
  }

  /** A stream that was never started has a page all the same: it can be started there. */
  function missing(failure) {
    if (failure.status !== 404) throw failure;
    showStatus(badge, 'stopped');
    text(verdict, failure.message);
    start.hidden = false;
    return [null, null];
  }

  async function change(method) {
    const isStart = method === 'POST';
    const sentence = isStart
      ? 'It goes on from its cursor, where it has one.'
      : 'The connection stores what it has read and closes. The stream stays stopped until it is started again.';
    if (!await confirmed(`${isStart ? 'Start' : 'Stop'} ${id}?`, sentence, isStart ? 'Start' : 'Stop')) return;
    text(problem, '');
    try {
      const answer = await ask(streamPath(id), method);
      announce(answer.message ?? `The stream ${id} is starting.`);
      for (const loop of loops) loop.now();
    } catch (failure) {
      text(problem, failure.message);
    }
  }

  const onlyLater = (failure) => {
    if (!failure.passes && failure.status !== 404) throw failure;
  };
  const loops = [
    repeat(load, EVERY_MS, server.failed),
    repeat(() => events.load(), EVERY_MS, onlyLater),
    repeat(async () => graph.show(await ask(streamPath(id, '/machine'), 'GET', tagged)), MACHINE_MS, onlyLater),
    repeat(async () => figures.showCost(await ask(streamPath(id, '/cost'))), COST_MS, onlyLater),
  ];
  const tick = setInterval(() => document.hidden || lanes.tick(), 1000);
  return {
    stop() {
      clearInterval(tick);
      events.stop();
      for (const loop of loops) loop.stop();
    },
  };
}

/** Why the stream is not connected, in the server's words. */
function showTrouble(node, { status, last_error: error, stuck_at_cursor: stuck }) {
  const isPresent = error !== null && error.over_at === null && status !== 'running' && status !== 'stopped';
  node.hidden = !isPresent && !stuck;
  if (node.hidden) return;
  const parts = [element('h2', { id: 'why' }, stuck ? 'Stuck at its cursor' : 'Why it is not connected')];
  if (stuck) parts.push(element('p', {}, `${stuck.same_ends} connections in a row got nothing beyond ${stuck.value}.`));
  if (isPresent) {
    const since = error.failures > 1 ? `${error.failures} failures in a row, the first at ${clock(error.since)}. ` : '';
    const next = error.tried_again_at ?? error.tried_again_by;
    const tried = next ? `Tried again ${error.tried_again_at ? 'at' : 'by'} ${clock(next)}. ` : '';
    const final = error.final_at ? `If the upstream still refuses at ${clock(error.final_at)}, the stream is rejected.` : '';
    parts.push(element('p', { class: 'lead' }, error.message));
    const more = `Failed at ${clock(error.at)}. ${since}${tried}${final}`.trim();
    parts.push(element('p', { class: 'soft' }, more));
  }
  const said = parts.map((part) => part.textContent).join('\n');
  if (node.dataset.said === said) return;
  node.dataset.said = said;
  node.replaceChildren(...parts);
}

