// Makes and updates elements. Invariants: text becomes text, never markup, so nothing that an upstream sent is run;
// what has not changed is not touched, so nothing flickers or loses the focus.

const SVG = 'http://www.w3.org/2000/svg';

/** A new element with these attributes and children; a child is a node or a text. `on…` are listeners. */
export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same for SVG. */
export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else set(node, name, value);
  }
  node.append(...children);
  return node;
}

/** Sets an attribute if it has another value; null and false remove it. */
export function set(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
  } else if (node.getAttribute(name) !== String(value)) {
    node.setAttribute(name, value === true ? '' : String(value));
  }
}

/** Sets the text of an element if it has another. */
export function text(node, value) {
  if (node.textContent !== String(value)) node.textContent = String(value);
}

/** Shows a list in `parent`: one node for each item by its key, in the items' order; nodes that stay are updated. */
export function keyed(parent, items, keyOf, make, update) {
  const focused = document.activeElement;
  const old = parent.keyedNodes;
  const kept = new Map();
  for (const item of items) {
    const key = keyOf(item);
    if (kept.has(key)) continue;
    const node = old?.get(key) ?? make(item);
    kept.set(key, node);
    update(node, item);
  }
  for (const [key, node] of old ?? []) if (!kept.has(key)) node.remove();
  let before = parent.firstChild;
  for (const node of kept.values()) {
    if (node === before) before = before.nextSibling;
    else parent.insertBefore(node, before);
  }
  parent.keyedNodes = kept;
  // A node that is moved loses the focus.
  if (document.activeElement !== focused && parent.contains(focused)) focused.focus({ preventScroll: true });
}

/**
 * A table that scrolls, on a telephone a card for each row, and a function that shows a list in it: `keyOf` tells items
 * apart, `cellsOf` is a row's texts, `more` does the rest for a row.
 */
export function scrolled(label, columns) {
  const rows = element('tbody', { role: 'rowgroup' });
  const head = element('tr', { role: 'row' },
    ...columns.map((name) => element('th', { scope: 'col', role: 'columnheader' }, name)));
  const node = element('div', { class: 'scroll cards', tabindex: '0', role: 'region', 'aria-label': label },
    element('table', { role: 'table' }, element('thead', { role: 'rowgroup' }, head), rows));
  const row = () => element('tr', { role: 'row' },
    ...columns.map((name) => element('td', { role: 'cell', 'data-name': name })));
  const show = (items, keyOf, cellsOf, more = () => {}) => keyed(rows, items, keyOf, row, (one, item) => {
    cellsOf(item).forEach((cell, at) => text(one.children[at], cell));
    more(one, item);
  });
  return { node, rows, show };
}

/** A place for the sentence of `attempt`. */
export const outcome = () => element('p', { class: 'soft', role: 'status' });

/** Does `work` for a button, which is disabled meanwhile; `place` has `begun`, then the sentence of work or failure. */
export async function attempt(button, work, place, begun = '') {
  const isFocused = document.activeElement === button;
  const say = (sentence, isFailure = false) => {
    set(place, 'class', isFailure ? 'problem' : 'soft');
    set(place, 'role', isFailure ? 'alert' : 'status');
    text(place, sentence);
  };
  button.disabled = true;
  say(begun);
  try {
    say(await work() ?? '');
  } catch (failure) {
    say(failure.message, true);
  } finally {
    button.disabled = false;
    // A disabled button loses the focus.
    if (isFocused && document.activeElement === document.body) button.focus();
  }
}

/** Announces something to people who cannot see the page, but nothing twice in a row. */
export function announce(sentence) {
  text(document.getElementById('announce'), sentence);
}

/** Whether the person answers yes to a question; Escape means no. The focus goes back to where it was. */
export function confirmed(title, sentence, yes) {
  const dialog = document.getElementById('confirm');
  text(document.getElementById('confirm-title'), title);
  text(document.getElementById('confirm-text'), sentence);
  text(document.getElementById('confirm-yes'), yes);
  dialog.returnValue = 'no';
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => resolve(dialog.returnValue === 'yes'), { once: true });
  });
}
