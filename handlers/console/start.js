// Starts a stream from the list: a form that suggests the profiles, and if nothing was started yet, a button for each
// demonstration stream.

import { ask, streamPath } from './api.js';
import { announce, attempt, element, outcome } from './dom.js';
import { visible } from './words.js';

// A demonstration whose streams need a name after the colon, and the one that is offered.
const NAMED = { 'demo-socket': 'demo-socket:eur-usd' };

/** The form and the buttons, `offers`; `load` reads the names of the profiles, `started` is called after a start. */
export function startForm(started) {
  const list = element('datalist', { id: 'profiles' });
  const field = element('input', {
    id: 'start', list: 'profiles', required: true, maxlength: 256, autocomplete: 'off', spellcheck: 'false',
    placeholder: 'demo',
  });
  const said = outcome();
  const button = element('button', { type: 'submit', class: 'main' }, 'Start');
  const demos = element('p', { class: 'actions' });
  const offers = element('div', { class: 'empty', hidden: true },
    element('p', {}, 'Start one by its name above, or one of these:'), demos);

  const start = (id) => attempt(button, async () => {
    await ask(streamPath(id), 'POST');
    announce(`The stream ${visible(id)} is starting.`);
    field.value = '';
    started();
    location.hash = `#/streams/${encodeURIComponent(id)}`;
  }, said);

  const form = element('form', {
    class: 'field start',
    onsubmit: (event) => {
      event.preventDefault();
      start(field.value.trim());
    },
  }, element('label', { for: 'start' }, 'Start a stream'),
  element('div', { class: 'row' }, field, button), list, said);
  return {
    form,
    offers,
    async load() {
      const { profiles = [] } = await ask('./');
      list.replaceChildren(...profiles.map((name) => element('option', { value: name })));
      const offered = profiles.filter((name) => /^demo(-|$)/.test(name)).map((name) => NAMED[name] ?? name);
      demos.replaceChildren(...offered.map(
        (id) => element('button', { type: 'button', onclick: () => start(id) }, `Start ${id}`)));
      if (!demos.children.length) offers.replaceChildren();
    },
  };
}
