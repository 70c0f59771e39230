// The parts in which a stream is read, each with its status and a link to its lanes and machine.

import { element, keyed, text } from './dom.js';
import { showStatus } from './streams.js';
import { kept, visible } from './words.js';

/** The part of the page; `show` takes a stream's status. */
export function partsPart() {
  const list = element('ul', { class: 'parts' });
  const node = element('section', { class: 'card', 'aria-labelledby': 'parts', hidden: true },
    element('h2', { id: 'parts' }, 'Parts'),
    element('p', { class: 'soft' }, 'Each has its own connection, lanes and machine.'), list);
  const make = ({ stream }) => element('li', {},
    element('a', { href: `#/streams/${encodeURIComponent(stream)}` }, visible(stream)), ' ',
    element('span', { class: 'status' }), ' ', element('span'));
  return {
    node,
    show({ parts }) {
      node.hidden = !parts;
      keyed(list, parts ?? [], (one) => one.stream, make, (item, { status, verdict }) => {
        showStatus(item.children[1], status);
        text(item.lastChild, kept(verdict));
      });
    },
  };
}
