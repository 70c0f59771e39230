// Says below the verdict what it leaves out: since when, when the next try comes, and what a person can do, by the cause.
// Invariant: what the verdict has said is not said again, and a stream that is well has no panel.

import { element } from './dom.js';
import { runbookLink } from './runbook.js';
import { clock, counted } from './words.js';

// What to do about an answer that was no stream, by its status; the first that fits.
const BY_STATUS = [
  [[401, 401], 'Renew the credential that its profile names. The next try reads it again.'],
  [[403, 403], 'Ask whoever runs the upstream for access, or put another credential into the profile.'],
  [[404, 410], 'Check the address in its profile: the upstream knows no such stream there.'],
  [[420, 429], 'Nothing, if it ends soon: the upstream asked to be left alone. If not, keep fewer connections to it.'],
  [[500, 599], 'Nothing, if it ends soon: the upstream itself fails. If not, ask whoever runs it.'],
  [[100, 599], 'Compare the request that its profile describes with what the upstream documents.'],
];
// And about an end without one, by its cause.
const BY_CAUSE = {
  unheard: ['Nothing, unless it happens again and again: then its functions are killed.', 'Kills'],
  unrecorded: ['Nothing, unless it happens again and again: then its functions are killed.', 'Kills'],
  refused: ['Check the address in its profile, and whether the upstream is up.', 'Unconnected'],
  unreachable: ['Check the address in its profile, and whether the upstream is up.', 'Unconnected'],
  tls: ["Check the upstream's certificate, and the address in the profile.", 'Unconnected'],
  over_budget: ['Nothing: it goes on at 00:00 UTC. Sooner, raise the budget in its profile and deploy.', 'Unconnected'],
  stalled: ['Nothing, if events come again. If the upstream may be silent for longer, raise stall_after_s in its profile.', 'Unconnected'],
  bad_frame: ['Check framing in its profile: what came is not framed so.', 'Unconnected'],
  frame_too_long: ['Raise max_frame_bytes in its profile, or let it dead-letter what is longer.', 'Unconnected'],
};
const USUAL = ['Nothing, if it ends soon: it is tried again by itself.', 'Unconnected'];

/** What to do, and the section of the runbook that has more; null where all is well. */
function advice({ status, reason, last_error: error, stuck_at_cursor: stuck, delivery }) {
  const section = status === 'rejected' ? 'Rejections' : 'Unconnected';
  if (stuck) return ['Ask whoever runs the upstream: it fails at one event. It is tried ever more slowly.', 'Stuck'];
  if (status === 'broken') return ['Start it; it goes on from its cursor. If it breaks again, the error of its execution says why.', 'ExecutionFailed'];
  if (status === 'unknown') return ['Stop it and start it. If that does not help, see whether Lambda has room for its functions.', 'Orphaned'];
  if (status === 'reconnecting' || status === 'starting' || status === 'rejected') {
    if (!error || error.over_at) return status === 'rejected' ? ['Mend its profile, then start it.', section] : null;
    const known = BY_STATUS.find(([[from, to]]) => error.http_status >= from && error.http_status <= to);
    const secret = error.detail?.startsWith('the secret ') ? ['Put the secret that its profile names.', section] : null;
    const found = known ? [known[1], section] : (secret ?? BY_CAUSE[error.cause]);
    if (status !== 'rejected') return found ?? USUAL;
    return [`${found?.[0] ?? 'Mend its profile.'} Then start it.`, section];
  }
  if (status === 'running' && reason) return ['Ask the upstream by itself (streamkeeper profile try) and compare.', 'Unconnected'];
  const waiting = delivery?.find((row) => row.waits);
  if (waiting) return [`Events wait for ${waiting.sink}: ${waiting.waits}. Nothing is lost; they are sent when it takes them.`, 'DeliveryLag'];
  return null;
}

/** The panel: `show` takes a stream's status. */
export function whyPart() {
  const node = element('section', { class: 'card trouble', 'aria-labelledby': 'why', hidden: true });
  return {
    node,
    show(status) {
      const todo = advice(status);
      node.hidden = todo === null;
      if (!todo) return;
      const said = JSON.stringify([facts(status), todo]);
      if (node.dataset.said === said) return;
      node.dataset.said = said;
      const [words, section] = todo;
      node.replaceChildren(
        element('h2', { id: 'why' }, 'Why, and what to do'),
        ...facts(status).map((one) => element('p', {}, one)),
        element('p', { class: 'lead' }, `${words} `, element('a', { href: runbookLink(section) }, `Runbook: ${section}`)),
      );
    },
  };
}

/** What is known beside the verdict, a sentence each. */
function facts({ verdict, last_error: error, stuck_at_cursor: stuck }) {
  const said = stuck ? [`The cursor is ${stuck.value ?? 'the beginning'}.`] : [];
  if (!error || error.over_at) return said;
  const { failures, since, at, tried_again_at: from, tried_again_by: by, final_at: final } = error;
  said.push(failures > 1 ? `${counted(failures, 'failure')} in a row${verdict.startsWith('Away') ? '' : ` since ${clock(since)}`}, the last at ${clock(at)}.` : `It failed at ${clock(at)}.`);
  if (from) said.push(`The next try comes after ${clock(from)}.`);
  else if (by) said.push(`The next try comes by ${clock(by)} at the latest.`);
  if (final) said.push(`If the upstream still refuses at ${clock(final)}, the stream is rejected and nobody tries again.`);
  return said;
}
