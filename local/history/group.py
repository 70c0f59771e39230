"""Reads histories from files and from Step Functions, and what no history contains: the gaps of streams as the ledger
has them, with those that were repaired.

Gaps come from the HTTP API for the streams that somebody names. For our own executions they come without that: the
input names the stream or the group, and its gaps are records of the stage's control table, which is read from the
DynamoDB of the SDK's own variables. Invariants: every invalid file and every refusal becomes a UserError that names the
file or the execution; for an execution that is not ours nothing but its history is read.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import botocore.session
from botocore.exceptions import BotoCoreError, ClientError

from handlers.connection.gap_record import apply_repairs, covers
from handlers.errors import StoreUnavailable
from handlers.group import is_group
from handlers.store.stream_records import StreamRecords
from handlers.store.typed_values import instant_ms, instant_text
from local import stages
from local.streams.api_session import ApiSession
from local.terminal import UserError
from states_language.workbench import Mistake, data
from streamkeeper.transport import path_of
from timeline.analysis import HistoryError, join_histories, read_page
from timeline.coverage import Gap, gap_ms
from timeline.spans import Event

_ARN = re.compile(r"arn:aws[a-z-]*:states:([a-z0-9-]+):\d{12}:execution:([^:]+):([^:/]+)")
# "The maximum number of results that are returned per call" (GetExecutionHistory, maxResults).
_HISTORY_PAGE = 1000

NamedHistory = tuple[str, list[Event]]


def read_files(paths: Sequence[Path]) -> list[NamedHistory]:
    """Returns each execution with its name; raises UserError if a file is not a history or a page is missing."""
    pages = []
    for path in paths:
        try:
            pages.append((str(path), read_page(data(path, "the history"))))
        except Mistake as problem:
            is_name = path.name == str(path) and not path.suffix and not path.exists()
            hint = f" For a stream, give --execution ARN, which `streamkeeper status {path} --json` prints"
            hint += " (for a stream in parts, that of a part)."
            raise UserError(f"{problem}{hint if is_name else ''}") from None
        except HistoryError as problem:
            raise UserError(f"{path} is not a history: {problem}.") from None
    try:
        found = join_histories(pages)
    except HistoryError as problem:
        raise UserError(f"{problem}.") from None
    firsts = [name for name, page in pages if page[0]["id"] == 1]
    return [(Path(name).name, history) for name, history in zip(firsts, found, strict=True)]


def read_execution(arn: str) -> NamedHistory:
    """Returns an execution's history from Step Functions, as reached by the SDK's own variables."""
    said = _ARN.fullmatch(arn)
    if said is None:
        raise UserError(
            f"--execution must be the ARN of a Standard execution, arn:aws:states:<region>:<account>:execution:"
            f"<machine>:<name>, not {arn!r}."
        )
    try:
        return said[3], _events(botocore.session.Session().create_client("stepfunctions", region_name=said[1]), arn)
    except ClientError as refusal:
        error = refusal.response["Error"]
        raise UserError(f"Step Functions refused {arn}: {error['Code']}: {error.get('Message', '')}") from None
    except BotoCoreError as problem:
        raise UserError(f"{arn} cannot be read: {str(problem).rstrip('.')}.") from None


def region_and_machine(arn: str) -> tuple[str, str]:
    """Returns the region and the machine's name in an execution's ARN; both "" if it is not one."""
    said = _ARN.fullmatch(arn)
    return ("", "") if said is None else (said[1], said[2])


def _events(client: Any, arn: str) -> list[Event]:
    events: list[Event] = []
    for page in client.get_paginator("get_execution_history").paginate(
        executionArn=arn, includeExecutionData=False, PaginationConfig={"PageSize": _HISTORY_PAGE}
    ):
        events += page["events"]
    return events


_OURS = re.compile(r"streamkeeper-([a-z0-9-]+)-connections")
_PAGE = 100


@dataclass(frozen=True, slots=True)
class GroupStreams:
    """The streams of a group, each with its gaps; times count from the start of the first execution.

    `group` is "" for a stream alone, and for those that were named. `problem` says why they are unknown, or is "".
    """

    group: str
    gaps: Mapping[str, Sequence[Gap]]
    problem: str = ""

    def has_repaired(self, missed: Gap) -> bool:
        """Returns whether all that any of the streams missed in this time was fetched later."""
        spans = ([(gap.from_ms, gap.to_ms) for gap in gaps if gap.is_repaired] for gaps in self.gaps.values())
        return bool(self.gaps) and all(covers(sorted(each), (missed.from_ms, missed.to_ms)) for each in spans)

    @property
    def with_gaps(self) -> list[tuple[str, Sequence[Gap]]]:
        """Returns those with gaps, the longest gap first."""
        return sorted(((one, gaps) for one, gaps in self.gaps.items() if gaps), key=lambda one: (-gap_ms(one[1]), one))


def streams_of_executions(arns: Sequence[str], origin_ms: int, until_ms: int) -> GroupStreams | None:
    """Returns the stream, or the streams of the group, that these executions keep; None if they are not ours.

    `origin_ms` is the beginning of the first one, `until_ms` the time from then to the end of the last one.
    """
    session = botocore.session.Session()
    for arn in arns:
        region, machine = region_and_machine(arn)
        stage = _OURS.fullmatch(machine)
        if stage is None:
            continue
        try:
            said = session.create_client("stepfunctions", region_name=region).describe_execution(executionArn=arn)
            kept = _stream_of_input(said.get("input", ""))
            if kept:
                records = StreamRecords(
                    session.create_client("dynamodb", region_name=region), stages.names(stage[1])["control_table"]
                )
                streams = sorted(records.members(kept)) if is_group(kept) else [kept]
                group = kept if is_group(kept) else ""
                return GroupStreams(group, _read_gaps(records, streams, origin_ms, until_ms))
        except (BotoCoreError, ClientError, StoreUnavailable) as problem:
            return GroupStreams("", {}, f"the gaps of its streams cannot be read: {type(problem).__name__}")
    return None


def streams_of_api(streams: ApiSession, stream_ids: Sequence[str], origin_ms: int, until_ms: int) -> GroupStreams:
    """Returns the gaps of these streams by the API, with the times of `streams_of_executions`.

    Raises as `ApiSession.request` does.
    """
    found: dict[str, list[Gap]] = {}
    times = {"from": instant_text(origin_ms), "to": instant_text(origin_ms + until_ms)}
    for stream_id in dict.fromkeys(stream_ids):
        pages = streams.pages(path_of(stream_id, "/gaps"), times)
        gaps = []
        for gap in (gap for page in pages for gap in page["gaps"]):
            # One that goes on has no end there.
            to_ms = instant_ms(gap["to_at"]) or origin_ms + until_ms
            gaps.append(Gap(instant_ms(gap["from_at"]) or 0, to_ms, gap["cause"], gap["state"]))
        found[stream_id] = _clip_gaps(gaps, origin_ms, until_ms)
    return GroupStreams("", found)


def _stream_of_input(data: str) -> str:
    """The stream or group in an execution's input; "" if there is none."""
    try:
        stream_id = json.loads(data)["pathParameters"]["streamId"]
    except (ValueError, KeyError, TypeError):
        return ""
    return stream_id if isinstance(stream_id, str) else ""


def _read_gaps(records: StreamRecords, streams: Sequence[str], origin_ms: int, until_ms: int) -> dict[str, list[Gap]]:
    found: dict[str, list[Gap]] = {}
    for stream_id in streams:
        after, gaps = "", []
        while page := records.gaps(stream_id, after, _PAGE):
            after = page[-1][0]
            gaps += [gap for _, gap in page]
        known = apply_repairs(gaps, [(gap, gap.repair) for gap in gaps if gap.repair is not None])
        shown = [Gap(gap.from_ms, gap.to_ms, gap.cause, gap.state) for gap in known]
        found[stream_id] = _clip_gaps(shown, origin_ms, until_ms)
    return found


def _clip_gaps(gaps: Sequence[Gap], origin_ms: int, until_ms: int) -> list[Gap]:
    """The gaps by the clock of the picture, without what lies outside of it."""
    moved = (
        replace(gap, from_ms=max(0, gap.from_ms - origin_ms), to_ms=min(until_ms, gap.to_ms - origin_ms))
        for gap in gaps
    )
    return [gap for gap in moved if gap.from_ms < gap.to_ms]
