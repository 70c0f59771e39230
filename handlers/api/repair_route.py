"""Answers `POST …/repair`: has gaps of a stream repaired now, or shows what that would bring.

    from, to     the gaps that lie at least partly in this time; without them all
    dry_run      true: walks over the pages, stores nothing, and answers with what would come

Invariant: a gap that was given up is tried again as if for the first time; repaired gaps stay repaired.
"""

import json
import time
from functools import partial
from typing import Any

from handlers.api.answers import Problem, to_iso
from handlers.api.control_stage import ApiCall, ControlStage
from handlers.api.queries import FOR_EVER, TIMES, BadQuery, instant_ms, is_dry_run, parameters_of
from handlers.aws.error_translation import translate_errors
from handlers.aws.lambda_environment import boto3_client
from handlers.repair.gap_edges import MOST_GAPS, gaps_since, incomplete_gaps, repair_again
from handlers.repair.work import RepairWork, start_repair
from handlers.store.ledger_records import LedgerRecords

# API Gateway waits for 29 seconds, and the function behind it for 20.
DRY_RUN_S = 17
# Makes the client that waits so many seconds for a dry run.
_functions = partial(boto3_client, "lambda", 1)


def answer(stage: ControlStage, call: ApiCall, ends_s: float) -> dict[str, Any]:
    """Returns the answer, of a dry run by `ends_s` of the monotonic clock.

    Raises BadQuery, Problem and StoreUnavailable.
    """
    if "repair" not in stage.known.fields(call.profile):
        raise Problem("no-repair", f"the profile {call.profile!r} names no address for repairs", "streamId")
    stream_id, now_ms, table = call.stream_id, stage.now_ms(), stage.settings.control_table
    from_ms, to_ms, is_dry = _read(call.query)
    if is_dry:
        shown = _dry_run(stage.settings.repair_function, stream_id, from_ms, to_ms, ends_s)
        return {"stream": stream_id, "is_dry_run": True, "gaps": shown}
    gaps, ledger = incomplete_gaps(gaps_since(stage.store, stream_id, from_ms)), LedgerRecords(stage.client, table, 0)
    wanted = [gap for gap in gaps if gap.from_ms < to_ms and gap.to_ms >= from_ms][MOST_GAPS - 1 :: -1]
    for gap in wanted:
        ledger.save_repair(stream_id, gap, repair_again(gap, now_ms))
    if wanted:
        RepairWork(stage.client, table).request(stream_id, now_ms, now_ms)
        start_repair(partial(_functions, DRY_RUN_S), stage.settings.repair_function, stream_id)
    shown = [{"from_at": to_iso(gap.from_ms), "to_at": to_iso(gap.to_ms), "state": gap.state} for gap in wanted]
    return {"stream": stream_id, "is_dry_run": False, "gaps": shown}


def _read(query: object) -> tuple[int, int, bool]:
    parameters = parameters_of(query, (*TIMES, "dry_run"))
    from_ms, to_ms = (instant_ms(name, parameters.get(name)) for name in TIMES)
    return from_ms or 0, FOR_EVER if to_ms is None else to_ms, is_dry_run(parameters, "repair")


def _dry_run(function: str, stream_id: str, from_ms: int, to_ms: int, ends_s: float) -> list[dict[str, Any]]:
    payload = json.dumps({"stream": stream_id, "dry_run": True, "from_ms": from_ms, "to_ms": to_ms}).encode()
    from botocore.exceptions import ReadTimeoutError

    words = f"the dry run takes longer than {DRY_RUN_S} s"
    late, left_s = BadQuery("from", words, "Request a shorter time with from and to."), round(ends_s - time.monotonic())
    if left_s < 1:
        raise late
    with translate_errors("Invoke"):
        try:
            response = _functions(left_s).invoke(FunctionName=function, Payload=payload)
            body = json.loads(response["Payload"].read())
        except ReadTimeoutError:
            raise late from None
    if "FunctionError" in response:
        raise Problem("bad-answer", "the repair function failed")
    if body["status"] != "done":
        raise Problem("repairing", "the gaps of this profile are being repaired now", "streamId")
    gaps: list[dict[str, Any]] = body["gaps"]
    return gaps
