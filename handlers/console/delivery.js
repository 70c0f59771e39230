// Where a stream's events go next, a row for each sink, and its dead-letter messages. These are read only on request:
// that receives the queue's messages and gives them back, and SQS counts each time (docs/console.md).

import { ask, streamPath } from './api.js';
import { element, scrolled, text } from './dom.js';
import { clock, length, number } from './words.js';

/** The part: `count` takes how many events went to the queue. */
export function deadLettersPart(id) {
  const summary = element('p', {}, '');
  const problem = element('p', { class: 'problem', role: 'alert' });
  const table = scrolled('Dead-letter messages', ['Sent', 'Key', 'Why']);
  table.node.hidden = true;
  const look = element('button', { type: 'button' }, 'Look into the queue');
  const result = element('p', { class: 'soft', role: 'status' });

  look.addEventListener('click', async () => {
    look.disabled = true;
    text(problem, '');
    text(result, 'Looking …');
    try {
      const { dead_letters: letters, is_all: isAll } = await ask(streamPath(id, '/dead-letters'));
      const key = ({ key: own, part }) => (own ? `${own}${part && part !== '1 of 1' ? ` (part ${part})` : ''}` : '–');
      table.show(letters, (one) => one.id, (one) => [clock(one.sent_at), key(one), one.reason]);
      table.node.hidden = letters.length === 0;
      const said = letters.length ? `${number(letters.length)} of this stream.` : 'None of this stream.';
      text(result, isAll ? said : `${said} The queue has more than were looked at.`);
    } catch (failure) {
      text(problem, failure.message);
      text(result, '');
    } finally {
      look.disabled = false;
    }
  });
  return {
    node: element('section', { class: 'card', 'aria-labelledby': 'letters-title' },
      element('h2', { id: 'letters-title' }, 'Dead letters'), summary, look, result, problem, table.node),
    count(letters) {
      text(summary, letters
        ? `${number(letters)} events could not be stored and went to the dead-letter queue. \`streamkeeper redrive\` puts them back.`
        : 'Every event that came could be stored.');
    },
  };
}

const SINKS = ['Sink', 'Delivered', 'Failed', 'Dead-lettered', 'Lag', 'Newest', 'Waits for'];

/** The part of the sinks, hidden where the profile delivers nothing: `show` takes the status of a stream. */
export function deliveryPart() {
  const table = scrolled('Sinks', SINKS);
  const node = element('section', { class: 'card delivery', 'aria-labelledby': 'delivery-title', hidden: true },
    element('h2', { id: 'delivery-title' }, 'Delivery'), table.node);
  return {
    node,
    show({ delivery }) {
      node.hidden = !delivery?.length;
      table.show(delivery ?? [], (one) => one.sink, (one) => [one.sink, number(one.delivered), number(one.failed),
        number(one.dead_lettered), length(one.lag_ms), clock(one.newest_received_at), one.waits ?? '–']);
    },
  };
}
