"""Reads what the history of a group's execution lacks: the gaps of the streams that share its functions.

The execution's input names the group; its streams and their gaps are records of the stage's control table, which is
read from the DynamoDB of the SDK's own variables. Invariant: for an execution that keeps a single stream, or that is
not ours, only its input is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import botocore.session
from botocore.exceptions import BotoCoreError, ClientError

from handlers.errors import StoreUnavailable
from handlers.group import is_group
from handlers.store.stream_records import StreamRecords
from local import stages
from local.history import sources
from timeline.coverage import Gap, gap_ms

_OURS = re.compile(r"streamkeeper-([a-z0-9-]+)-connections")
_PAGE = 100


@dataclass(frozen=True, slots=True)
class GroupStreams:
    """The streams of a group, each with its gaps; times count from the start of the first execution.

    `problem` says why they are unknown, or is "".
    """

    group: str
    gaps: Mapping[str, Sequence[Gap]]
    problem: str = ""

    @property
    def with_gaps(self) -> list[tuple[str, Sequence[Gap]]]:
        """Returns those with gaps, the longest gap first."""
        return sorted(((one, gaps) for one, gaps in self.gaps.items() if gaps), key=lambda one: (-gap_ms(one[1]), one))


def of_executions(arns: Sequence[str], origin_ms: int, until_ms: int) -> GroupStreams | None:
    """Returns the streams of the group that these executions keep, None if they do not keep a group.

    `origin_ms` is the beginning of the first one, `until_ms` the time from then to the end of the last one.
    """
    session = botocore.session.Session()
    for arn in arns:
        region, machine = sources.place_of(arn)
        stage = _OURS.fullmatch(machine)
        if stage is None:
            continue
        try:
            said = session.create_client("stepfunctions", region_name=region).describe_execution(executionArn=arn)
            group = _group_in(said.get("input", ""))
            if group:
                records = StreamRecords(
                    session.create_client("dynamodb", region_name=region), stages.names(stage[1])["control_table"]
                )
                return GroupStreams(group, _gaps(records, group, origin_ms, until_ms))
        except (BotoCoreError, ClientError, StoreUnavailable) as problem:
            return GroupStreams("", {}, f"the gaps of its streams cannot be read: {type(problem).__name__}")
    return None


def _group_in(data: str) -> str:
    """The group in an execution's input; "" if there is none."""
    try:
        stream_id = json.loads(data)["pathParameters"]["streamId"]
    except (ValueError, KeyError, TypeError):
        return ""
    return stream_id if isinstance(stream_id, str) and is_group(stream_id) else ""


def _gaps(records: StreamRecords, group: str, origin_ms: int, until_ms: int) -> dict[str, list[Gap]]:
    found: dict[str, list[Gap]] = {}
    for stream_id in sorted(records.members(group)):
        after, gaps = "", found.setdefault(stream_id, [])
        while page := records.gaps(stream_id, after, _PAGE):
            after = page[-1][0]
            for _, gap in page:
                from_ms, to_ms = max(0, gap.from_ms - origin_ms), min(until_ms, gap.to_ms - origin_ms)
                if from_ms < to_ms:
                    gaps.append(Gap(from_ms, to_ms, gap.cause))
    return found
