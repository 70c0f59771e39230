// The dead-letter messages of a stream. They are looked at when somebody asks: a look receives the queue's messages and
// gives them back, and SQS counts each time (docs/console.md).

import { ask, streamPath } from './api.js';
import { element, keyed, text } from './dom.js';
import { clock, number } from './words.js';

/** The part: `count` takes how many events went to the queue. */
export function deadLettersPart(id) {
  const summary = element('p', {}, '');
  const problem = element('p', { class: 'problem', role: 'alert' });
  const rows = element('tbody');
  const table = element('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Dead-letter messages', hidden: true },
    element('table', {}, element('thead', {}, element('tr', {}, ...['Sent', 'Key', 'Why'].map((name) => element('th', { scope: 'col' }, name)))), rows));
  const look = element('button', { type: 'button' }, 'Look into the queue');
  const result = element('p', { class: 'soft', role: 'status' });

  look.addEventListener('click', async () => {
    look.disabled = true;
    text(problem, '');
    text(result, 'Looking …');
    try {
      const { dead_letters: letters, is_all: isAll } = await ask(streamPath(id, '/dead-letters'));
      keyed(rows, letters, (one) => one.id, () => element('tr', {}, element('td'), element('td'), element('td')), (row, one) => {
        text(row.children[0], clock(one.sent_at));
        text(row.children[1], one.key ? `${one.key}${one.part && one.part !== '1 of 1' ? ` (part ${one.part})` : ''}` : '–');
        text(row.children[2], one.reason);
      });
      table.hidden = letters.length === 0;
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
      element('h2', { id: 'letters-title' }, 'Dead letters'), summary, look, result, problem, table),
    count(letters) {
      text(summary, letters
        ? `${number(letters)} events could not be stored and went to the dead-letter queue. \`streamkeeper redrive\` puts them back.`
        : 'Every event that came could be stored.');
    },
  };
}
