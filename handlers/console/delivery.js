// Shows where a stream's events go next, a row for each sink with its commands, and the dead-letter messages. These
// are read only on request: that receives the queue's messages and gives them back, and SQS counts each time
// (docs/console.md).

import { ask, streamPath } from './api.js';
import { attempt, confirmed, element, keyed, outcome, scrolled, set, text } from './dom.js';
import { runbookLink } from './runbook.js';
import { clock, counted, length, number, visible } from './words.js';

// What a redrive can do, and what it cannot.
const CAN =
  'It stores each event that the queue holds whole, at its place among the others. It cannot put back an event that' +
  ' was longer than max_frame_bytes, because the queue has only its first bytes. To start a rejected stream again, ' +
  'use Start.';

/** The part: `count` takes how many events went to the queue. */
export function deadLettersPart(id) {
  const summary = element('span');
  const advice = element('a', { href: runbookLink('DeadLetters'), hidden: true }, 'What to do');
  const table = scrolled('Dead-letter messages', ['Sent', 'Key', 'Why']);
  table.node.hidden = true;
  const look = element('button', { type: 'button', onclick: () => attempt(look, shown, result, 'Looking …') },
    'Look into the queue');
  const redrive = element('button', {
    type: 'button',
    onclick: async () => {
      if (await confirmed(`Redrive the dead letters of ${visible(id)}?`, CAN, 'Redrive')) {
        attempt(redrive, putBack, result, 'Putting back …');
      }
    },
  }, 'Redrive');
  const result = outcome();

  async function putBack() {
    const { dead_letters: letters, is_all: isAll } = await ask(streamPath(id, '/redrive'), 'POST');
    const left = letters.filter((one) => one.outcome === 'left');
    const kept = new Map();
    for (const { detail } of left) kept.set(detail, (kept.get(detail) ?? 0) + 1);
    const reasons = [...kept].map(([detail, count]) => `${number(count)}: ${detail}`).join('; ');
    const done = letters.length
      ? `${counted(letters.length - left.length, 'message')} handled, ${number(left.length)} left`
      : 'None of this stream';
    return `${done}${reasons && ` (${reasons})`}.${isAll ? '' : ' The queue has more: redrive again.'}`;
  }

  async function shown() {
    const { dead_letters: letters, is_all: isAll } = await ask(streamPath(id, '/dead-letters'));
    const key = ({ key: own, part }) => (own ? `${own}${part && part !== '1 of 1' ? ` (part ${part})` : ''}` : '–');
    table.show(letters, (one) => one.id, (one) => [clock(one.sent_at), key(one), one.reason]);
    table.node.hidden = letters.length === 0;
    if (isAll) return letters.length ? `${number(letters.length)} of this stream.` : 'None for this stream.';
    return `${number(letters.length)} of this stream so far. The queue has more messages: look again.`;
  }

  return {
    node: element('section', { class: 'card', 'aria-labelledby': 'letters-title' },
      element('h2', { id: 'letters-title' }, 'Dead letters'), element('p', {}, summary, ' ', advice),
      element('p', { class: 'actions' }, look, redrive), result, table.node),
    count(letters) {
      advice.hidden = !letters;
      for (const one of [look, redrive]) set(one, 'class', !letters && 'quiet');
      text(summary, letters ? `${counted(letters, 'event')} could not be stored and went to the dead-letter queue.`
        : 'No event of this stream went to the dead-letter queue.');
    },
  };
}

const SINKS = ['Sink', 'Delivered', 'Failed', 'Dead-lettered', 'Waiting', 'Oldest', 'Newest', 'Why it waits'];
const idOf = (one) => (one.stream ? `${one.stream} ${one.sink}` : one.sink);
const cells = (one) => [
  idOf(one), number(one.delivered), number(one.failed), number(one.dead_lettered), number(one.waiting),
  one.lag_ms ? length(one.lag_ms) : '–', clock(one.newest_received_at),
  one.waits ?? (one.replaying ? 'a replay' : one.seen_at ? '–' : 'not tried yet'),
];

const DONE = {
  pause: 'paused', resume: 'resumed', skip: 'its oldest event is skipped', replay: 'it gets the events again',
};

/** The instant of a local time; "start" for an empty text, and the text itself if it is none: the API refuses it. */
const since = (local) => (Number.isNaN(Date.parse(local)) ? local || 'start' : new Date(local).toISOString());

/** The sinks, of each part of a stream in parts; hidden if the profile delivers nothing. `show` takes a status. */
export function deliveryPart(id) {
  const table = scrolled('Sinks', SINKS);
  const which = element('select', { 'aria-label': 'Sink' });
  const from = element('input', { type: 'datetime-local', id: 'replay-from' });
  const result = outcome();
  const show = ({ delivery }) => {
    node.hidden = !delivery?.length;
    table.show(delivery ?? [], idOf, cells);
    keyed(which, delivery ?? [], (one) => one.sink, () => element('option'), (option, one) => text(option, one.sink));
  };
  const button = (word, make, question) =>
    element('button', { type: 'button', onclick: ({ target }) => send(target, make, question) }, word);
  async function send(pressed, make, question) {
    const sink = which.value;
    const command = { sink, ...make() };
    if (command.from && !from.reportValidity()) return; // a day without its time is no empty field
    const word = pressed.textContent;
    if (question && !(await confirmed(`${word} for ${sink}?`, question(command.from), word))) return;
    await attempt(pressed, async () => {
      const { sinks } = await ask(streamPath(id, `/sinks?${new URLSearchParams(command)}`), 'POST');
      show({ delivery: sinks });
      return `${sink}: ${DONE[command.do]}.`;
    }, result);
  }
  const node = element('section', { class: 'card delivery', 'aria-labelledby': 'delivery-title', hidden: true },
    element('h2', { id: 'delivery-title' }, 'Delivery'), table.node,
    element('div', { class: 'actions' }, which, button('Pause', () => ({ do: 'pause' })),
      button('Resume', () => ({ do: 'resume' })),
      button('Skip one', () => ({ do: 'skip' }),
        () => 'The oldest waiting event is not sent. It stays stored, and a replay sends it.'),
      element('div', { class: 'row' }, element('label', { for: 'replay-from' }, 'Replay from'), from,
        button('Replay', () => ({ do: 'replay', from: since(from.value) }), (at) => {
          const when = Number.isNaN(Date.parse(at)) ? at : clock(at);
          const what = at === 'start' ? 'All stored events are' : `What was stored since ${when} is`;
          return `${what} sent again. Then the sink continues where it was.`;
        }))),
    result);
  return { node, show };
}
