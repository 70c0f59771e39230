"""Answers about a stream that is read in parts (`parts` of its profile), from the records of its parts.

It is connected while all parts are; its status is the worst of theirs, and its gaps are all of theirs. Invariants:
nothing is written; the answer has every field of a stream's, and none claims more for the whole than for each part;
what is lost in one part is lost; a part that was never started has no page, and keeps the whole from being connected; a
whole is listed once in a walk, before the first of its parts that was started.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

from handlers.api import status, status_words
from handlers.api.answers import to_iso
from handlers.api.bill import cost
from handlers.api.connection_records import Connections, Records
from handlers.api.figures import Coverage, coverage, is_lost, lost_events
from handlers.api.known_profiles import KnownProfiles
from handlers.api.last_error import Retries
from handlers.api.status import SHOWN
from handlers.api.verdict import Situation, verdict
from handlers.connection.gap_record import Gap, Interval
from handlers.store.stream_records import StreamRecords

WORST_FIRST = (
    "broken", "rejected", "unknown", "reconnecting", "starting", "stopping", "stopped", "ended", "running",
)  # fmt: skip
NEVER: dict[str, Any] = {
    "status": "stopped", "verdict": "Never started.", "reason": "never started; start the stream",
    **dict.fromkeys(("since_at", "since_before_at")),
}  # fmt: skip
Answer = dict[str, Any]


def whole_status(
    stream_id: str,
    records: Mapping[str, Records | None],
    now_ms: int,
    dead_after_ms: int,
    retries: Retries,
    *,
    is_brief: bool = False,
) -> Answer | None:
    """Returns the answer about the whole, as `status.answer` does; None if no part was ever started.

    `records` are those of the parts, by their ids; None for one that was never started.
    """
    of_part = partial(status.answer, now_ms=now_ms, dead_after_ms=dead_after_ms, retries=retries, is_brief=is_brief)
    answers = {part_id: of_part(part_id, one) for part_id, one in records.items() if one is not None}
    known = list(answers.values())
    if not known:
        return None
    parts = [
        {"stream": part_id} | {name: answers.get(part_id, NEVER)[name] for name in ("status", "verdict", "reason")}
        for part_id in records
    ]
    worst = min(parts, key=lambda one: WORST_FIRST.index(one["status"]))
    of_worst = {name: value for name, value in answers.get(worst["stream"], known[0]).items() if name != "group"}
    whole = _whole(records.values(), now_ms, dead_after_ms)
    running = sum(one["status"] == "running" for one in parts)
    since_ms = None if whole is None else whole.connected_since_ms
    for_ms, since = None if since_ms is None else now_ms - since_ms, [one["since_at"] for one in known]
    # The records of a part without it do not reach back to its last pause.
    since_at = max(since) if all(since) else None
    situation = Situation("running", for_ms=for_ms, at_least=since_at is None, is_brief=is_brief)
    sentence = (
        verdict(situation, whole) if running == len(parts) else _worst_verdict(worst, parts, records, whole, of_part)
    )
    unwell = next((one for one in sorted(parts, key=lambda one: one is not worst) if one["reason"]), None)
    return of_worst | {
        "stream": stream_id,
        "status": worst["status"],
        "verdict": f"{running} of {len(parts)} parts connected. {sentence}",
        "reason": None if unwell is None else f"{unwell['stream']}: {unwell['reason']}",
        **dict.fromkeys(("execution", "holder", "cursor")),
        "lanes": {},
        **{name: max(one[name] for one in known) for name in ("generation", "fence")},
        "started_at": _combine_known(min, known, "started_at"),
        "since_at": since_at if running == len(parts) else answers.get(worst["stream"], NEVER)["since_at"],
        "since_before_at": to_iso(since_ms) if running == len(parts) and since_at is None else None,
        "ended_at": _combine_known(max, known, "ended_at") if all(one["ended_at"] for one in known) else None,
        "last_event_at": _combine_known(max, known, "last_event_at"),
        "events_per_s": _combine_known(_sum, known, "events_per_s"),
        "ids_restarted_at": _combine_known(max, known, "ids_restarted_at"),
        "open_gaps": sum(one["open_gaps"] for one in known),
        "open_gaps_at_least": any(one["open_gaps_at_least"] for one in known),
        "pace": {name: _combine_known(min, (one["pace"] for one in known), name) for name in of_worst["pace"]},
        "coverage": None if whole is None else _coverage_json(whole, known),
        "stuck_at_cursor": next((one["stuck_at_cursor"] for one in known if one["stuck_at_cursor"]), None),
        "budget": max((one["budget"] for one in known if one["budget"]), key=itemgetter("used_percent"), default=None),
        "bill": _bill([one["bill"] for one in known if one["bill"]]),
        "counts": _counts([one["counts"] for one in known]),
        "parts": parts,
    }


def _worst_verdict(
    worst: Answer,
    parts: Sequence[Answer],
    records: Mapping[str, Records | None],
    whole: Coverage | None,
    of_part: Callable[..., Answer],
) -> str:
    """Returns the verdict of the worst part with what the whole lacks, and its id if others are in another state."""
    of = records[worst["stream"]]
    sentence = worst["verdict"] if of is None else of_part(worst["stream"], of, whole=whole)["verdict"]
    return sentence if len({one["status"] for one in parts}) == 1 else f"{worst['stream']}: {sentence}"


def _combine_known(function: Callable[[Any], Any], answers: Iterable[Mapping[str, Any]], name: str) -> Any:
    """Returns the function of the known values; None if there are none."""
    values = [one[name] for one in answers if one[name] is not None]
    return function(values) if values else None


def _sum(values: Iterable[float]) -> float:
    """Returns the sum of rounded numbers: of 0.1 and 0.2, which are no floats, it is 0.3."""
    return round(sum(values), 6)


def _whole(records: Iterable[Records | None], now_ms: int, dead_after_ms: int) -> Coverage | None:
    """Returns what the connections of all parts covered together: a time is missing if any part lacks it."""
    every = []
    for one in filter(None, records):
        connections = Connections(one, now_ms, dead_after_ms)
        every.append(coverage(status_words.status(connections), connections, one))
    covered = [one for one in every if one is not None]
    if not covered:
        return None
    since_ms, to_ms = min(one.since_ms for one in covered), max(one.to_ms for one in covered)
    lacking = [part for one in covered for part in _intervals_between(one.spans, one.since_ms, one.to_ms)]
    gaps = [gap for one in covered for gap in _part_gaps(one)]
    connected = [one.connected_since_ms for one in every if one is not None and one.connected_since_ms is not None]
    return Coverage(
        since_ms,
        to_ms,
        tuple(_intervals_between(lacking, since_ms, to_ms)),
        tuple(sorted(gaps, key=lambda gap: gap.from_ms)),
        None,
        max(connected) if len(connected) == len(every) else None,
        all(one.reaches_start for one in covered),
        all(one.is_over for one in covered),
        sum(one.dead_lettered for one in covered),
        min((one.waiting_since_ms for one in covered if one.waiting_since_ms is not None), default=None),
    )


def _part_gaps(covered: Coverage) -> Iterator[Gap]:
    """Yields the gaps of a part; events that it lost are never the same as those that other parts lost."""
    is_known = lost_events(gap for gap in covered.gaps if is_lost(gap)) is not None
    for gap in (*covered.gaps, *((covered.away,) if covered.away is not None else ())):
        yield replace(gap, fence=0, events=gap.events if is_known else None)


def _intervals_between(intervals: Iterable[Interval], from_ms: int, to_ms: int) -> list[Interval]:
    """Returns the intervals between those, within [from_ms, to_ms)."""
    found, at_ms = [], from_ms
    for begin_ms, end_ms in sorted(intervals):
        if begin_ms > at_ms:
            found.append((at_ms, begin_ms))
        at_ms = max(at_ms, end_ms)
    return [*found, (at_ms, to_ms)] if at_ms < to_ms else found


def _coverage_json(whole: Coverage, answers: Sequence[Answer]) -> Answer:
    """Returns the coverage as JSON; the numbers of connections and the overlaps are sums of the parts' own."""
    shown = [one["coverage"] for one in answers if one["coverage"] is not None]
    gaps = sorted((gap for one in shown for gap in one["gaps"]), key=lambda gap: gap["from_at"])
    sums = {name: sum(one[name] for one in shown) for name in ("connections", "overlap_ms")}
    return whole.as_json() | sums | {"gaps": gaps}


def _bill(bills: Sequence[Answer]) -> Answer | None:
    if not bills:
        return None
    sums = {name: _combine_known(_sum, bills, name) for name in ("so_far_usd", "forecast_month_usd")}
    return {"since_at": _combine_known(min, bills, "since_at"), **sums}


def _counts(counts: Sequence[Answer]) -> Answer:
    ends = sum((Counter(one["ends"]) for one in counts), Counter[str]())
    numbers = [name for name in counts[0] if name not in ("ends", "at_least")]
    return {
        **{name: sum(one[name] for one in counts) for name in numbers},
        "at_least": any(one["at_least"] for one in counts),
        "ends": dict(sorted(ends.items())),
    }


def sum_costs(stream_id: str, costs: Sequence[Answer]) -> Answer:
    sums = {name: _combine_known(_sum, costs, name) for name in ("about_usd", "forecast_month_usd", "hours", "events")}
    of_what = {name: _combine_known(_sum, (one["parts"] for one in costs), name) for name in costs[0]["parts"]}
    begun = {"from_at": _combine_known(min, costs, "from_at"), "to_at": _combine_known(max, costs, "to_at")}
    return costs[0] | {"stream": stream_id} | begun | sums | {"parts": of_what}


class PartedStreams:
    """The answers at one instant; `first_execution` has the records of a part whose POST was just answered."""

    def __init__(
        self,
        store: StreamRecords,
        known: KnownProfiles,
        first_execution: Callable[[str], Records | None],
        now_ms: int,
        dead_after_ms: int,
        retries: Retries,
    ) -> None:
        self._store, self._known, self._first_execution = store, known, first_execution
        self._instants = now_ms, dead_after_ms
        self._answer = partial(whole_status, now_ms=now_ms, dead_after_ms=dead_after_ms, retries=retries)

    def status(self, stream_id: str, part_ids: Sequence[str]) -> dict[str, Any]:
        """Returns the status; raises Problem if no part was ever started."""
        records = {
            one: self._known.enrich(one, self._store.read(one) or self._first_execution(one)) for one in part_ids
        }
        found = self._answer(stream_id, records)
        if found is None:
            raise self._known.problem_without(stream_id, stream_id)
        return found

    def merge_rows(self, rows: list[dict[str, Any]], lag: Callable[[str], int | None]) -> list[dict[str, Any]]:
        """Returns the rows of a page of streams, with one for each whole; `lag` returns a part's lag."""
        found = list(rows)
        for name in dict.fromkeys(row["stream"].partition(":")[0] for row in rows):
            part_ids = self._known.parts(name)
            read = self._store.read_for_status(part_ids)
            records = {one: read(one) for one in part_ids}
            first = min((one for one in part_ids if records[one] is not None), key=str.encode, default=None)
            at = next((at for at, row in enumerate(found) if row["stream"] == first), None)
            whole = None if at is None else self._answer(name, records, is_brief=True)
            if at is not None and whole is not None:
                lags = (lag(one) for one in part_ids)
                row = {field: whole[field] for field in (*SHOWN, "parts") if field in whole}
                found.insert(at, row | {"lag_ms": max((one for one in lags if one is not None), default=None)})
        return found

    def cost(self, stream_id: str, part_ids: Sequence[str]) -> dict[str, Any]:
        """Returns about what the parts have cost together; raises Problem if none was started."""
        costs = [cost(one, found, *self._instants) for one in part_ids if (found := self._store.read(one)) is not None]
        if not costs:
            raise self._known.problem_without(stream_id, stream_id)
        return sum_costs(stream_id, costs)
