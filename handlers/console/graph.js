// Draws the graph of the stream's state machine, from the definition that its execution runs, and lights its current
// states. Invariant: the lit states are named in words too, and no state is left out.

import { element, set, svg, text } from './dom.js';

const HEIGHT = 26;
const ROW = 46;
const BETWEEN = 14;
const PADDING = 16;
const HEAD = 26;
const LETTER = 6.6;

/** The part, closed at first: `show` takes the answer of `GET …/machine`; `opened` is called when it is opened. */
export function graphPart(opened) {
  const now = element('p', { class: 'now', id: 'graph-now' });
  const picture = svg('svg', { class: 'graph', role: 'img', 'aria-labelledby': 'graph-title graph-now' });
  const scroll = element('div',
    { class: 'scroll graph-scroll', tabindex: '0', role: 'region', 'aria-label': 'Graph of the machine' }, picture);
  const details = element('details', { ontoggle: () => details.open && opened() },
    element('summary', {}, element('h2', { id: 'graph-title' }, 'State machine')), now, scroll);
  const node = element('section', { class: 'card', 'aria-labelledby': 'graph-title' }, details);
  let drawn = '';
  let boxes = new Map();

  return {
    node,
    isOpen: () => details.open,
    show({ graph, current, execution_status: status }) {
      const told = JSON.stringify(graph);
      if (told !== drawn) {
        drawn = told;
        boxes = graph ? draw(picture, graph) : new Map();
        scroll.hidden = !graph;
        scroll.scrollLeft = (scroll.scrollWidth - scroll.clientWidth) / 2;
      }
      const lit = new Set(current);
      for (const [name, box] of boxes) set(box, 'class', lit.has(name) ? 'state lit' : 'state');
      const inside = current.filter((name) => boxes.has(name) && !boxes.get(name).isGroup);
      const none = status ? `No state is current: the execution ${status.toLowerCase()}.` : 'No execution is known.';
      text(now, inside.length ? `Now in ${inside.join(' and ')}.` : none);
    },
  };
}

function draw(picture, graph) {
  const root = placed(graph);
  set(picture, 'viewBox', `0 0 ${root.width} ${root.height}`);
  set(picture, 'width', root.width);
  set(picture, 'height', root.height);
  const boxes = new Map();
  picture.replaceChildren(
    svg('defs', {}, svg('marker', {
      id: 'arrow', viewBox: '0 0 8 8', refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: 'auto',
    },
      svg('path', { class: 'arrow', d: 'M0,0 L8,4 L0,8 z' }))),
    painted(root, 0, 0, boxes));
  return boxes;
}

/** Each state of the graph with its place and size, those of branches within their own. */
function placed(graph) {
  const names = Object.keys(graph.states);
  const { layer, back } = layered(graph);
  const rows = [];
  for (const name of names) (rows[layer.get(name) ?? 0] ??= []).push(name);
  const boxes = new Map(names.map((name) => [name, sized(name, graph.states[name])]));
  let top = PADDING;
  const width = Math.max(
    ...rows.map((row) => row.reduce((sum, name) => sum + boxes.get(name).width + BETWEEN, -BETWEEN)));
  for (const row of rows) {
    sorted(row, boxes, graph);
    let left = PADDING + (width - row.reduce((sum, name) => sum + boxes.get(name).width + BETWEEN, -BETWEEN)) / 2;
    for (const name of row) {
      Object.assign(boxes.get(name), { x: left, y: top });
      left += boxes.get(name).width + BETWEEN;
    }
    top += Math.max(...row.map((name) => boxes.get(name).height)) + ROW - HEIGHT;
  }
  return { boxes, back, graph, width: width + 2 * PADDING, height: top - (ROW - HEIGHT) + PADDING };
}

function sized(name, state) {
  const inner = (state.branches ?? []).map(placed);
  const own = name.length * LETTER + 24;
  if (!inner.length) return { width: own, height: HEIGHT, inner };
  const width = inner.reduce((sum, one) => sum + one.width, 0);
  return { width: Math.max(own, width), height: Math.max(...inner.map((one) => one.height)) + HEAD, inner };
}

/** The length of the longest way to each state, and which edges lead back. */
function layered(graph) {
  const back = new Set();
  const state = new Map();
  const order = [];
  const visit = (name) => {
    state.set(name, 'open');
    for (const { to } of graph.states[name].next) {
      if (state.get(to) === 'open') back.add(`${name}\n${to}`);
      else if (!state.has(to) && graph.states[to]) visit(to);
    }
    state.set(name, 'done');
    order.unshift(name);
  };
  visit(graph.start);
  const layer = new Map([[graph.start, 0]]);
  for (const name of order) {
    for (const { to } of graph.states[name].next) {
      if (!back.has(`${name}\n${to}`)) layer.set(to, Math.max(layer.get(to) ?? 0, (layer.get(name) ?? 0) + 1));
    }
  }
  return { layer, back };
}

/** Puts a row's states below those that lead to them. */
function sorted(row, boxes, graph) {
  const centre = (name) => {
    const leads = (other) => graph.states[other].next.some(({ to }) => to === name);
    const above = [...boxes].filter(([other, box]) => box.x !== undefined && leads(other));
    if (!above.length) return 0;
    return above.reduce((sum, [, box]) => sum + box.x + box.width / 2, 0) / above.length;
  };
  const centres = new Map(row.map((name) => [name, centre(name)]));
  row.sort((a, b) => centres.get(a) - centres.get(b));
}

/** The edges lie below the states, and what is in a group above it. */
function painted(root, left, top, all) {
  const edges = svg('g');
  const layer = svg('g', {}, edges);
  for (const [name, box] of root.boxes) {
    const [x, y] = [left + box.x, top + box.y];
    const isGroup = box.inner.length > 0;
    const { type, comment, next } = root.graph.states[name];
    const node = svg('g', { class: 'state' },
      svg('rect', {
        class: isGroup ? 'group' : 'box', x, y, width: box.width, height: box.height, rx: isGroup ? 10 : 13,
      }),
      svg('text', { x: x + box.width / 2, y: y + 17, 'text-anchor': 'middle' }, name),
      svg('title', {}, `${name} (${type})${comment ? `: ${comment}` : ''}`));
    node.isGroup = isGroup;
    all.set(name, node);
    layer.append(node);
    let inside = x + (box.width - box.inner.reduce((sum, one) => sum + one.width, 0)) / 2;
    for (const one of box.inner) {
      layer.append(painted(one, inside, y + HEAD - PADDING / 2, all));
      inside += one.width;
    }
    for (const { to, caught } of next) {
      const target = root.boxes.get(to);
      const isBack = root.back.has(`${name}\n${to}`);
      if (target) edges.append(edge(x, y, box, left + target.x, top + target.y, target, isBack, caught));
    }
  }
  return layer;
}

function edge(x, y, box, toX, toY, target, isBack, isCaught) {
  const [startX, endX] = [x + box.width / 2, toX + target.width / 2];
  const startY = isBack ? y + box.height / 2 : y + box.height;
  const endY = isBack ? toY + target.height / 2 : toY;
  const bend = Math.max(18, (endY - startY) / 2);
  const side = isBack ? Math.min(x, toX) - 10 - Math.min(40, Math.abs(y - toY) / 12) : 0;
  const way = isBack
    ? `M${x},${startY} C${side},${startY} ${side},${endY} ${toX},${endY}`
    : `M${startX},${startY} C${startX},${startY + bend} ${endX},${endY - bend} ${endX},${endY}`;
  return svg('path', { d: way, class: isCaught ? 'caught' : 'plain', 'marker-end': 'url(#arrow)' });
}
