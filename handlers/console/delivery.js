// Where a stream's events go next: a row for each sink, with what waits and why. Hidden where the profile delivers nothing.

import { element, keyed, text } from './dom.js';
import { clock, length, number } from './words.js';

const COLUMNS = ['Sink', 'Delivered', 'Failed', 'Dead-lettered', 'Lag', 'Newest', 'Waits for'];

/** The part: `show` takes the status of a stream. */
export function deliveryPart() {
  const rows = element('tbody');
  const head = element('tr', {}, ...COLUMNS.map((name) => element('th', { scope: 'col' }, name)));
  const table = element('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Sinks' },
    element('table', {}, element('thead', {}, head), rows));
  const node = element('section', { class: 'card delivery', 'aria-labelledby': 'delivery-title', hidden: true },
    element('h2', { id: 'delivery-title' }, 'Delivery'), table);
  return {
    node,
    show({ delivery }) {
      node.hidden = !delivery?.length;
      keyed(rows, delivery ?? [], (one) => one.sink, () => element('tr', {}, ...COLUMNS.map(() => element('td'))), (row, one) => {
        const cells = [one.sink, number(one.delivered), number(one.failed), number(one.dead_lettered),
          length(one.lag_ms), clock(one.newest_received_at), one.waits ?? '–'];
        cells.forEach((cell, at) => text(row.children[at], cell));
      });
    },
  };
}
