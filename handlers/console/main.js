// The page: chooses the view by the address, requests a key if one is needed, and shows whether the server answers.
// Invariant: only the current view makes requests; a view that is left stops.

import { Failure, ask, key } from './api.js';
import { announce, element, text } from './dom.js';
import { runbookView } from './runbook.js';
import { streamView } from './stream.js';
import { streamsView } from './streams.js';
import { visible } from './words.js';

const main = document.getElementById('main');
const link = document.getElementById('link');
const forget = document.getElementById('forget');
let view = null;
let isLost = false;
let isShown = false; // whether the view has had an answer

/** Takes what a view reports: that the server answered, or a failure and when it tries again. */
const server = {
  answered() {
    if (isLost) announce('The server answers again.');
    isLost = false;
    isShown = true;
    link.dataset.state = 'live';
    text(link, '● Live');
  },
  failed(failure, restMs) {
    // A defect of the page is reported like a lost server, because what the page shows grows old as well.
    const said = failure instanceof Failure
      ? failure.message
      : `The page failed, please reload it: ${failure.message}.`;
    if (failure.needsKey) return askKey(failure.message);
    link.dataset.state = 'lost';
    const again = `Trying again in ${Math.ceil(restMs / 1000)}\u00a0s${isShown ? '; the page shows older data' : ''}.`;
    text(link, `▲ ${said} ${again}`);
    isLost = true;
    return undefined;
  },
};

function show() {
  view?.stop();
  document.getElementById('confirm').close();
  isShown = false;
  // Each view has a place of its own, so that an answer that comes after it was left changes no other.
  const place = element('div');
  main.replaceChildren(place);
  const section = /^#\/runbook\/?(.*)$/.exec(location.hash)?.[1];
  const match = /^#\/streams\/(.+)$/.exec(location.hash);
  let id = null;
  try {
    id = match && decodeURIComponent(match[1]);
  } catch {
    id = match[1];
  }
  if (section !== undefined) view = runbookView(place, server, section);
  else view = id === null ? streamsView(place, server) : streamView(place, server, id);
  const title = section === undefined ? id && visible(id) : 'Runbook';
  document.title = title === null ? 'Streamkeeper' : `${title} · Streamkeeper`;
  forget.hidden = !key.get();
}

function askKey(sentence) {
  view?.stop();
  view = null;
  const field = element('input',
    { id: 'key', type: 'password', autocomplete: 'off', required: true, pattern: '[ -~]+', title: 'ASCII characters' });
  const problem = element('p', { role: 'alert', class: 'problem' }, key.get() ? `Refused: ${sentence}` : '');
  const submit = async (event) => {
    event.preventDefault();
    key.set(field.value.trim());
    try {
      await ask('connections?limit=1');
      show();
      main.focus();
    } catch (failure) {
      text(problem, failure.needsKey ? `This key is refused: ${failure.message}` : failure.message);
      field.select();
    }
  };
  main.replaceChildren(
    element('section', { class: 'card narrow', 'aria-labelledby': 'key-title' },
      element('h1', { id: 'key-title' }, 'A key is needed'),
      element('p', {}, 'This server requires its API key. This tab keeps the key until it is closed, ' +
        'and sends it only to this server.'),
      problem,
      element('form', { onsubmit: submit },
        element('label', { for: 'key' }, 'API key'), field,
        element('button', { class: 'main', type: 'submit' }, 'Go on'))),
  );
  link.dataset.state = 'waiting';
  text(link, '◌ Waiting for a key');
  field.focus();
}

forget.addEventListener('click', () => {
  key.set('');
  show();
});
window.addEventListener('hashchange', () => {
  if (!/^#(\/|$)/.test(location.hash)) return; // the link that skips to the content
  show();
  main.focus({ preventScroll: true });
  window.scrollTo(0, 0);
});
show();
