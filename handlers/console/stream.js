// One stream: its verdict first, why and what to do, then figures, lanes, events, dead letters and machine; it is
// started and stopped here. Invariants: nothing is started or stopped without a question; a part that fails leaves the
// others as they are.

import { ask, repeat, streamPath } from './api.js';
import { announce, attempt, confirmed, element, outcome, text } from './dom.js';
import { deadLettersPart, deliveryPart } from './delivery.js';
import { EVERY_MS, eventsPart } from './events.js';
import { figuresPart } from './figures.js';
import { graphPart } from './graph.js';
import { groupPart } from './group.js';
import { lanesPart } from './lanes.js';
import { partsPart } from './parts.js';
import { showStatus } from './streams.js';
import { whyPart } from './why.js';
import { HELD, isAnswered, since, visible } from './words.js';

const MACHINE_MS = 3000;
const COST_MS = 30_000;

/** Shows the stream `id` in `parent`; the view has `stop`. */
export function streamView(parent, server, id) {
  const badge = element('span', { class: 'status' });
  const verdict = element('p', { class: 'verdict' }, 'Loading …');
  const start = element('button', { type: 'button', class: 'main', hidden: true, onclick: () => change(start, 'POST') },
    'Start');
  const stop = element('button', { type: 'button', hidden: true, onclick: () => change(stop, 'DELETE') }, 'Stop');
  const said = outcome();
  const trouble = whyPart();
  const figures = figuresPart();
  const lanes = lanesPart();
  const group = groupPart(id);
  const parts = partsPart();
  const events = eventsPart(id);
  const letters = deadLettersPart(id);
  const delivery = deliveryPart(id);
  const graph = graphPart(() => loops[2].now());
  const body = element('div', { hidden: true }, parts.node, figures.node, lanes.node, group.node, events.node,
    delivery.node, letters.node, graph.node);
  const tagged = new Map();
  parent.append(
    element('nav', { 'aria-label': 'Place' }, element('a', { href: '#/' }, '← Streams')),
    element('div', { class: 'title' },
      element('h1', {}, visible(id)), badge, element('div', { class: 'actions' }, start, stop)),
    verdict, said, trouble.node, body,
  );
  let known = null;
  let cursor = null;
  let isInParts = false;

  async function load() {
    const read = async () => Promise.all([ask(streamPath(id)), timelineOf()]);
    const [status, timeline] = await read().catch(missing);
    if (!parent.isConnected) return;
    server.answered();
    body.hidden = !status;
    if (!status) return;
    if (known && known !== status.status) {
      announce(`The stream ${visible(id)} is ${status.status}.`);
      text(said, '');
    }
    known = status.status;
    showStatus(badge, status.status);
    text(verdict, since(status.verdict, status.since_at));
    start.hidden = HELD.includes(status.status) || isAnswered(status.reason);
    stop.hidden = !HELD.includes(status.status) || status.status === 'stopping';
    cursor = status.cursor?.value ?? null;
    text(start, cursor === null ? 'Start' : 'Start from its cursor');
    trouble.show(status);
    figures.show(status);
    events.know(status);
    parts.show(status);
    for (const one of [lanes, graph]) one.node.hidden = isInParts;
    if (timeline) lanes.show(status, timeline);
    group.show(status);
    letters.count(status.counts.dead_lettered);
    delivery.show(status);
  }

  /** The timeline; null for a stream that is read in parts, each of which has its own. */
  async function timelineOf() {
    if (isInParts) return null;
    return ask(streamPath(id, '/timeline')).catch((failure) => {
      if (failure.kind !== 'in-parts') throw failure;
      isInParts = true;
      return null;
    });
  }

  /** A stream that was never started can be started here; one that no profile can describe has only a link back. */
  function missing(failure) {
    const isNone = ['unknown-stream', 'bad-stream-id'].includes(failure.kind);
    if (failure.status !== 404 && !isNone) throw failure;
    text(verdict, failure.message);
    // Its records may be gone, so nothing of them stays.
    text(badge, '');
    known = cursor = null;
    text(start, 'Start');
    start.hidden = isNone;
    stop.hidden = trouble.node.hidden = true;
    if (isNone) {
      stopAll();
      parent.replaceChildren(...[...parent.children].slice(0, 2),
        element('section', { class: 'card', 'aria-label': 'Unknown stream' },
        element('p', { class: 'lead' }, failure.message), element('p', {}, ...meant(failure.fix))));
    }
    return [null, null];
  }

  /** The advice, with a link to the stream that may be meant. */
  function meant(fix) {
    const [, name] = /^Did you mean '(.+)'\?/.exec(fix) ?? [];
    const list = element('a', { href: '#/' }, 'the list of streams');
    if (!name) return ['Choose a profile under “Start a stream” in ', list, '.'];
    const other = name + id.replace(/^[^:]*/, '');
    return ['Did you mean ', element('a', { href: `#/streams/${encodeURIComponent(other)}` }, visible(other)), '?'];
  }

  async function change(button, method) {
    const isStart = method === 'POST';
    const alone = cursor === null
      ? 'It has no cursor: its profile decides where it begins.'
      : `It continues from its cursor, ${visible(cursor)}.`;
    const from = isInParts ? 'Each part continues from its own cursor, if it has one.' : alone;
    const closes = isInParts
      ? 'Each part stores what it has read and closes.'
      : 'The connection stores what it has read and closes.';
    const sentence = isStart ? from : `${closes} The stream stays stopped until it is started again.`;
    if (!await confirmed(`${isStart ? 'Start' : 'Stop'} ${visible(id)}?`, sentence, isStart ? 'Start' : 'Stop')) return;
    await attempt(button, async () => {
      const answer = await ask(streamPath(id), method);
      for (const loop of loops) loop.now();
      return answer.message ?? (answer.already_running ? 'It was running already.' : '');
    }, said, isStart ? 'Starting …' : 'Stopping …');
  }

  const onlyLater = (failure, restMs) => {
    if (!failure.passes && failure.status !== 404) server.failed(failure, restMs);
  };
  const loops = [
    repeat(load, EVERY_MS, server.failed),
    repeat(() => events.load(), EVERY_MS, onlyLater),
    repeat(async () => graph.isOpen() && graph.show(await ask(streamPath(id, '/machine'), 'GET', tagged)),
      MACHINE_MS, onlyLater),
    repeat(async () => figures.showCost(await ask(streamPath(id, '/cost'))), COST_MS, onlyLater),
  ];
  const tick = setInterval(() => document.hidden || lanes.tick(), 1000);
  function stopAll() {
    clearInterval(tick);
    events.stop();
    for (const loop of loops) loop.stop();
  }
  return { stop: stopAll };
}
