// Shows below the verdict what it leaves out: since when, when the next try comes, and what a person can do by the
// cause. Invariant: the panel does not repeat the verdict, and a stream that is well has no panel.

import { element, keyed, set, text } from './dom.js';
import { runbookLink } from './runbook.js';
import { clock, counted, isAnswered, nextStep, serverNow } from './words.js';

const OLD_GAP_MS = 60_000;

// What to do about an answer that was not a stream, by its status; the first match counts.
const BY_STATUS = [
  [[401, 401], 'Renew the credential that its profile names; each try reads it again.'],
  [[403, 403], 'Ask the operator of the upstream for access, or put another credential into the profile.'],
  [[404, 410], 'Check the address in its profile: the upstream has no such stream there.'],
  [[420, 429], 'Nothing, if it ends soon: the upstream asked for fewer requests. If it lasts, keep fewer connections ' +
    'to it.'],
  [[500, 599], 'Nothing, if it ends soon: the upstream itself fails. If it lasts, ask its operator.'],
  [[100, 599], 'Compare the request in its profile with the documentation of the upstream.'],
];
// What to do about an end without such an answer, by its cause.
const BY_CAUSE = {
  unheard: ['Nothing, unless it happens repeatedly: then something kills its functions.', 'Kills'],
  unrecorded: ['Nothing, unless it happens repeatedly: then something kills its functions.', 'Kills'],
  refused: ['Check the address in its profile, and whether the upstream is up.', 'Unconnected'],
  unreachable: ['Check the address in its profile, and whether the upstream is up.', 'Unconnected'],
  tls: ["Check the upstream's certificate, and the address in the profile.", 'Unconnected'],
  over_budget: ['Nothing: it continues then. To continue sooner, raise its budget and deploy.', 'Unconnected'],
  stalled: ['Nothing, if events come again. If the upstream may be silent for longer, raise stall_after_s in its ' +
    'profile.', 'Unconnected'],
  bad_frame: ['Check framing in its profile: the answer is framed in another way.', 'Unconnected'],
  frame_too_long: ['Raise max_frame_bytes in its profile, or set oversize to dead-letter.', 'Unconnected'],
};
// What to do about a stream that runs, by its reason; the first match counts.
const BY_REASON = [
  [/ are stored under new keys$/, 'Nothing: new events are stored. The upstream has probably restarted.',
    'Unconnected'],
  [/ids start over/, 'Set on_conflict = "epoch" in its profile, and deploy.', 'Unconnected'],
  [/ budget /, 'Raise the budget in its profile and deploy, or find out why the upstream sends so much.',
    'Unconnected'],
  [/ dead-letter queue$/, 'Look into the queue below: it says why. Redrive stores the events that are whole.',
    'DeadLetters'],
  [/ lost/, 'Each loss is among the gaps, with its cause.', 'Missing'],
  [/./, 'Read the upstream directly (streamkeeper profile try) and compare.', 'Unconnected'],
];
// What to do about a sink that waits, by why it does.
const BY_WAIT = [
  [/^paused$/, 'Resume it below.'],
  [/NotFound|NonExistent/, 'Create it, or correct its name in the profile.'],
  [/AccessDenied/, 'Correct its policy.'],
  [/answered 40[13]/, 'Correct its secret.'],
];
const USUAL = ['Nothing, if it ends soon: it is tried again automatically.', 'Unconnected'];

/** What to do, and the runbook's section about it; null if all is well. */
function advice({ status, reason, counts, coverage, last_error: error, stuck_at_cursor: stuck, delivery }) {
  const section = status === 'rejected' ? 'Rejections' : 'Unconnected';
  if (status === 'rejected' && isAnswered(reason)) return ['Nothing: its answer is below.', section];
  if (reason?.startsWith('its lease cannot be read')) {
    return ['Correct the named attributes in the record lease of the control table.', section];
  }
  if (stuck) {
    return ['Ask the operator of the upstream: it fails at one event. Tries become less and less frequent.', 'Stuck'];
  }
  if (status === 'broken') {
    const step = nextStep(reason);
    const now = `${step[0].toUpperCase()}${step.slice(1)}`;
    return [`${now}. If it breaks again, see the error of its execution.`, 'ExecutionFailed'];
  }
  if (status === 'unknown') {
    return ['Stop it and start it. If that does not help, check whether Lambda has free concurrency.', 'Throttles'];
  }
  if (status === 'reconnecting' || status === 'starting' || status === 'rejected') {
    if (!error || error.over_at) return status === 'rejected' ? ['Correct its profile, then start it.', section] : null;
    const known = BY_STATUS.find(([[from, to]]) => error.http_status >= from && error.http_status <= to);
    const isSecret = /\bthe (secret|parameter) '/.test(error.detail);
    const secret = isSecret
      ? ['Create or correct the secret that its profile names; each try reads it again.', section]
      : null;
    const found = known ? [known[1], section] : (secret ?? BY_CAUSE[error.cause]);
    if (status !== 'rejected') return found ?? USUAL;
    return [`${found?.[0] ?? 'Correct its profile.'} Then start it.`, section];
  }
  if (status === 'running' && reason?.startsWith('quiet') && counts.duplicates > counts.stored) {
    return ['It brings events that are stored already. See whether the upstream counts its ids from the beginning ' +
      'again.', section];
  }
  if (status === 'running' && reason) return BY_REASON.find(([words]) => words.test(reason)).slice(1);
  const [waiting, ...others] = delivery?.filter((row) => row.waits) ?? [];
  if (waiting) {
    const todo = BY_WAIT.find(([words]) => words.test(waiting.waits))?.[1] ?? 'They are sent once it takes them.';
    const more = others.length ? ` ${counted(others.length, 'more sink')} below cannot take them either.` : '';
    return [`Events wait for ${waiting.sink}: ${waiting.waits}. They stay stored. ${todo}${more}`, 'DeliveryLag'];
  }
  // A younger gap may close by itself in a moment.
  const isLeft = ({ state, to_at: to }) => state === 'open' && to && Date.parse(to) < serverNow() - OLD_GAP_MS;
  return status === 'running' && coverage?.gaps.some(isLeft)
    ? ['Each gap is in a table below, with its cause and whether it can be repaired.', 'Missing']
    : null;
}

/** The panel: `show` takes a stream's status. */
export function whyPart() {
  const more = element('div');
  const step = element('span');
  const link = element('a');
  const node = element('section', { class: 'card trouble', 'aria-labelledby': 'why', hidden: true },
    element('h2', { id: 'why' }, 'Why, and what to do'), more, element('p', { class: 'lead' }, step, ' ', link));
  return {
    node,
    show(status) {
      const todo = advice(status);
      node.hidden = todo === null;
      if (!todo) return;
      const [words, section] = todo;
      keyed(more, facts(status), String, (one) => element('p', {}, one), () => {});
      text(step, words);
      text(link, `Runbook: ${section}`);
      set(link, 'href', runbookLink(section));
    },
  };
}

/** The facts beside the verdict, a sentence each. */
function facts({ verdict, since_at: away, last_error: error, stuck_at_cursor: stuck }) {
  const said = stuck ? [`The cursor is ${stuck.value ?? 'the beginning'}.`] : [];
  if (!error || error.over_at) return said;
  const { cause, failures, since, at, tried_again_at: from, tried_again_by: by, final_at: final } = error;
  if (failures > 1 && cause !== 'over_budget') {
    const begin = verdict.startsWith('Away') ? '' : ` since ${clock(since)}`;
    said.push(`${counted(failures, 'failure')} in a row${begin}, the last at ${clock(at)}.`);
  } else if (at && cause !== 'over_budget' && clock(away) !== clock(at)) {
    said.push(`It failed at ${clock(at)}.`);
  }
  if (from) said.push(`The next try comes after ${clock(from)}.`);
  else if (by) said.push(`The next try comes by ${clock(by)}.`);
  if (final) said.push(`If the upstream still refuses at ${clock(final)}, the stream is rejected and not tried again.`);
  return said;
}
