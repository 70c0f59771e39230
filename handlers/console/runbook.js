// Shows one section of the runbook, docs/runbook.md, which the server has among the page's files.
// Invariant: its text becomes elements by the few marks of Markdown that the runbook uses, never markup.

import { Failure, repeat } from './api.js';
import { element } from './dom.js';

const EVERY_MS = 3_600_000;
const MARKS = /`([^`]+)`|\*\*([^*]+)\*\*|\*([^*]+)\*|\[([^\]]+)\]\(([^)]+)\)/g;

/** The address of a section, in the page. */
export const runbookLink = (section) => `#/runbook/${slug(section)}`;

const slug = (name) => name.toLowerCase().replaceAll(' ', '-');

/** Shows the section with this name in `parent`, or the list of sections if there is none; the view has `stop`. */
export function runbookView(parent, server, section) {
  const title = element('h1', {}, 'Runbook');
  const text = element('section', { class: 'card prose' }, element('p', { class: 'soft' }, 'Loading …'));
  const index = element('nav', { 'aria-label': 'Sections of the runbook', class: 'sections' });
  parent.append(element('nav', { 'aria-label': 'Place' }, element('a', { href: '#/' }, '← Streams')), title, text,
    index);

  async function load() {
    if (index.firstChild) return; // what somebody reads stays as it is
    const sections = await read();
    if (!parent.isConnected) return;
    server.answered();
    const found = sections.find(({ name }) => slug(name) === section) ?? sections[0];
    title.textContent = found === sections[0] ? 'Runbook' : `Runbook: ${found.name}`;
    text.replaceChildren(...blocks(found.text));
    index.replaceChildren(...sections.slice(1).map(({ name }) => element('a', { href: runbookLink(name) }, name)));
  }

  return repeat(load, EVERY_MS, (failure, restMs) => {
    text.replaceChildren(element('p', { class: 'problem', role: 'alert' }, failure.message));
    server.failed(failure, restMs);
  });
}

/** The sections, the first without a name. */
async function read() {
  const answer = await fetch('console/runbook.md').catch(() => null);
  if (!answer?.ok) throw new Failure(answer?.status ?? 0, 'The runbook could not be read.');
  const [head, ...sections] = (await answer.text()).split(/^## /m);
  const parted = sections.map((one) => [one.slice(0, one.indexOf('\n')).trim(), one.slice(one.indexOf('\n'))]);
  return [['', head.replace(/^# .*$/m, '')], ...parted].map(([name, text]) => ({ name, text }));
}

/** Paragraphs, lists, tables and code, as elements. */
function blocks(text) {
  return text.trim().split(/\n\s*\n/).map((block) => {
    const lines = block.split('\n');
    if (block.startsWith('|')) return table(lines);
    if (block.startsWith('```')) return element('pre', { tabindex: '0' }, lines.slice(1, -1).join('\n'));
    const bullet = /^(?:-|\d+\.) /;
    if (!bullet.test(block)) return element('p', {}, ...inline(block));
    const items = block.split(/^(?:-|\d+\.) /m).slice(1);
    return element(block.startsWith('-') ? 'ul' : 'ol', {}, ...items.map((one) => element('li', {}, ...inline(one))));
  });
}

function table([head, , ...rows]) {
  const cells = (row, name) => row.split('|').slice(1, -1).map((cell) => element(name, {}, ...inline(cell.trim())));
  return element('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Table' },
    element('table', {}, element('thead', {}, element('tr', {}, ...cells(head, 'th'))),
      element('tbody', {}, ...rows.map((row) => element('tr', {}, ...cells(row, 'td'))))));
}

/** Text with code, emphasis and links; a link to another page of the documentation becomes plain text. */
function inline(text) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(MARKS)) {
    parts.push(text.slice(end, match.index));
    end = match.index + match[0].length;
    const [, code, strong, em, words, to] = match;
    if (to?.startsWith('#')) parts.push(element('a', { href: runbookLink(to.slice(1)) }, words));
    else if (to) parts.push(...inline(words));
    else parts.push(element(code ? 'code' : strong ? 'strong' : 'em', {}, code ?? strong ?? em));
  }
  return [...parts, text.slice(end)].filter((part) => part !== '');
}
