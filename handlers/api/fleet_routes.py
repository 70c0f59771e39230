"""Answers `PUT /fleet`, which begins to apply a document, and `GET /fleet`, which shows the progress.

Invariants: a PUT of the document that is being applied starts nothing beside it; if its execution is gone, another
continues at the same place; a PUT that fails leaves what is being applied; `?dry_run=true` changes no stream.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from handlers.api.answers import Problem, to_iso
from handlers.api.verdict import plural
from handlers.aws.error_translation import translate_errors
from handlers.aws.executions import is_running
from handlers.fleet.fleet_document import JSON, LINES, MOST_STREAMS, TOML, DocumentError, Wanted, read
from handlers.fleet.fleet_records import APPLYING, DONE, Fleet, FleetRecords, digest_of

# For so long Step Functions may not show an execution that was started; a step saves its progress more often.
UNSEEN_MS = 10_000
_KINDS = {LINES: LINES, JSON: JSON, TOML: TOML, "text/toml": TOML, "": TOML}


def apply_document(
    records: FleetRecords, wanted: Wanted, states: Callable[[], Any], machine_arn: str, now_ms: int, *, is_dry: bool
) -> dict[str, Any]:
    """Has an execution of the machine apply the document, and returns its progress; raises StoreUnavailable.

    `states` makes boto3's client of Step Functions.
    """
    before, digest = records.read(), digest_of(wanted)
    with translate_errors("StartExecution"):
        if before.state == APPLYING and before.digest == digest and is_running(states(), before.execution):
            return progress_json(before, now_ms, is_dry=is_dry)
        # The commands that sent the same document recognize it by the digest.
        name = f"{digest[:16]}-{now_ms}{'-dry' if is_dry else ''}"
        execution = machine_arn.replace(":stateMachine:", ":execution:") + f":{name}"
        # The new execution replaces the running one once it has started, even if this function is killed by then.
        records.prepare(wanted, execution, now_ms)
        states().start_execution(stateMachineArn=machine_arn, name=name, input=json.dumps({"is_dry": is_dry}))
    return progress_json(records.begin(execution, now_ms), now_ms, is_dry=is_dry)


def read_progress(records: FleetRecords, states: Callable[[], Any], now_ms: int, *, is_dry: bool) -> dict[str, Any]:
    """Returns the progress, "interrupted" if the execution was aborted or failed; raises StoreUnavailable."""
    fleet = records.read()
    with translate_errors("DescribeExecution"):
        is_late = fleet.state == APPLYING and now_ms > max(fleet.begun_ms, fleet.saved_ms) + UNSEEN_MS
        # An execution that ends as it should has saved that before.
        if is_late and not is_running(states(), fleet.execution) and records.read() == fleet:
            fleet = replace(fleet, state="interrupted")
    return progress_json(fleet, now_ms, is_dry=is_dry)


def document(
    text: str, kind: str, has_profile: Callable[[str], bool], parts_of: Callable[[str], Sequence[str]]
) -> Wanted:
    """Returns what a document of the Content-Type `kind` wants; raises Problem.

    `parts_of` returns the ids of a stream's parts: what the document says of the stream holds for each part that it
    does not name itself.
    """
    known = _KINDS.get(kind.partition(";")[0].strip().lower())
    if known is None:
        fix = f"Send TOML ({TOML}), JSON ({JSON}) or lines ({LINES})."
        raise Problem("bad-body", "the document's Content-Type is not supported", "Content-Type", fix)
    try:
        wanted = read(text, known)
    except DocumentError as error:
        raise Problem("bad-document", str(error), error.place or None) from None
    names = {one.partition(":")[0] for one, is_connected in wanted.ids.items() if is_connected}
    for name in sorted(names):
        if not has_profile(name):
            raise Problem("unknown-stream", f"no profile is named {name!r}", "connected")
    ids = dict(wanted.ids)
    for name in wanted.ids:
        if parts := parts_of(name):
            is_connected = ids.pop(name)
            ids = dict.fromkeys(parts, is_connected) | ids
    if len(ids) > MOST_STREAMS:
        raise Problem("bad-document", f"counting parts, the document names more than {MOST_STREAMS:,} streams", None)
    return Wanted(dict(sorted(ids.items(), key=lambda one: one[0].encode())), wanted.patterns)


def progress_json(fleet: Fleet, now_ms: int, *, is_dry: bool) -> dict[str, Any]:
    """Returns the answer about the document that is applied, or was applied last."""
    over_ms = fleet.ended_ms or now_ms
    return {
        "state": fleet.state or "never applied",
        "dry_run": is_dry,
        "message": _message(fleet, is_dry=is_dry),
        "wanted": {"connected": fleet.connected, "stopped": fleet.stopped_wanted, "patterns": fleet.patterns},
        "started": fleet.started,
        "stopped": fleet.stopped,
        "as_wanted": fleet.as_wanted,
        "left": fleet.left,
        "refused_and_tried_again": fleet.refused,
        "round": fleet.rounds,
        "position": fleet.position or None,
        "a_second": fleet.per_s,
        "not_yet": json.loads(fleet.not_yet or "[]"),
        "execution": fleet.execution or None,
        "begun_at": to_iso(fleet.begun_ms or None),
        "ended_at": to_iso(fleet.ended_ms or None),
        "seconds": max(0, round((over_ms - fleet.begun_ms) / 1000)) if fleet.begun_ms else None,
    }


def _message(fleet: Fleet, *, is_dry: bool) -> str:
    if not fleet.state:
        return "No document was applied yet: send one with PUT /fleet."
    did = f"{plural(fleet.started, 'stream')} {'would be ' if is_dry else ''}started, {fleet.stopped:,} stopped"
    if fleet.state == "interrupted":
        return f"{did} before its execution was aborted or failed: send the document again to continue."
    if fleet.state != DONE:
        return f"{did} so far; round {fleet.rounds + 1}, {fleet.as_wanted:,} as wanted, {fleet.left:,} not yet."
    if fleet.as_wanted + fleet.left == 0:
        return "No stream that was ever started matches: nothing was changed."
    if fleet.left and not is_dry:
        return f"{did}; {fleet.as_wanted:,} as wanted, {fleet.left:,} not: not_yet says why."
    return f"{did}; {fleet.as_wanted:,} as wanted{' already' if is_dry else ''}."
