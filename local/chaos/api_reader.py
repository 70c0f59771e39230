"""Reads pages and the status of a running stream through the control API's own code, and compares them with the world.

A status lags behind the world until a new connection is recorded, or a dead one is known to be dead. Only facts that
have not changed for longer are compared exactly. Invariant: the requests depend on the schedule's seed alone.
"""

import bisect
import random
import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from handlers.api import event_pages, status
from handlers.api.answers import Problem, to_iso
from handlers.api.last_error import Retries
from handlers.connection.evidence import Record
from handlers.connection.gap_record import DELIVERED, LOST, OPEN, Gap, Repair, apply_repairs
from handlers.connection.lease import LEASE_TTL_READS
from handlers.connection.ledger import correct_losses, find_gaps
from handlers.store import typed_values
from handlers.store.event_reader import EventReader, key_of_position, position_of
from handlers.store.stream_records import StreamRecords
from local.chaos.draws import REFUSALS, SLOW_MS
from local.chaos.facts import lease, ledger, ledger_rows, noticed_ms
from local.chaos.figure_rules import wrong_shares, wrong_waiting
from local.chaos.invariants import end_word, final_status
from local.chaos.schedule import requests
from local.chaos.world import World
from local.simulation.unreliable_clients import LATEST_MS

# The time between two requests, and how many entries a page may have.
LEAST_MS, MOST_MS = 6_000, 20_000
LIMITS, MOST = (1, 2, 3, 7, 25, 25, 100), 1_000
# The share of pages that continue where the last one ended; the others begin anywhere.
GOES_ON = 0.85
# A status is compared exactly if nothing has changed for this long, plus the time after which a silent connection
# counts as dead. It covers the writing of a claim, an opening and a record.
SETTLED_MS = 1_000
# Allows for a second opening, a kill, and a store that is slow for a moment.
SLACK_MS = 1_500
# The faults that delay the tables or the functions, and for how long after their end.
SETTLE_AFTER_MS = {"throttles": 0, "unknown outcomes": LATEST_MS, "slow store": 4 * max(SLOW_MS), "freeze": 0}
# When the machine tries again; no comparison depends on it.
RETRIES = Retries(60_000, 60_000)


class ApiReader:
    """Reads about one stream; reports what is wrong to the stream's world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._clock = world.clock
        self._draws = random.Random(f"{world.schedule.seed} {world.stream}")
        self._records = StreamRecords(world.tables, world.control_table, world.account.events_table)
        self._events = EventReader(world.tables, world.account.events_table, lambda _key: None)
        self._after = ""
        self._delivered: set[tuple[str, str]] = set()  # begin and end of each gap that was ever shown as delivered

    @property
    def _dead_after_ms(self) -> int:
        """The time after which a silent holder of any deployed version counts as dead."""
        functions = [version.function for version in self._world.deployed]
        return LEASE_TTL_READS * max(max(one.lease_every_ms, one.progress_every_ms) for one in functions)

    def begin(self) -> None:
        """Schedules the next request; one follows the other until the run is over."""
        self._clock.call_at(self._clock.now_ms() + self._draws.randrange(LEAST_MS, MOST_MS), self._ask)

    def end(self) -> None:
        """Reads the rest of the events, and the status for the last time."""
        while self.page(MOST):
            pass
        self.status()

    def _ask(self) -> None:
        self.page(self._draws.choice(LIMITS))
        self.status()
        self.begin()

    # --- events -------------------------------------------------------------------------------------------------------

    def page(self, limit: int) -> bool:
        """Reads one page, and returns whether there may be more after it."""
        world, layout = self._world, self._records.layout(self._world.stream)
        if layout is None:
            return False
        is_by_key = layout.order == "none"
        order = world.watch.keys if is_by_key else world.watch.order
        position = position_of if is_by_key else str
        if is_by_key and "/" in self._after:
            self._after = ""  # a position in the order that the stream had before
        if order and self._draws.random() >= GOES_ON:
            self._after = position(self._draws.choice(order)[0])
        after = self._after
        try:
            event_pages.check_place(after, layout.order)
        except Problem as problem:
            world.blame("misread", f"a page after {after!r} is refused: {problem}")
            self._after = ""
            return False
        entries = self._events.entries(world.stream, layout, self._clock.now_ms(), after, limit, event_pages.BODY_BYTES)
        page = event_pages.page(world.stream, entries, limit, lambda: False, order=layout.order)
        behind = key_of_position(after) if is_by_key and after else after
        first = bisect.bisect_right(order, (behind, sys.maxsize)) if after else 0
        expected = [(position(where), number) for where, number in order[first : first + limit]]
        shown = [(event["position"], self._number(event)) for event in page["events"]]
        goes_on = expected[-1][0] if len(expected) == limit else None
        if (shown, page["next"]) != (expected, goes_on):
            numbers = [number for _, number in shown], [number for _, number in expected]
            world.blame("misread", f"{limit} events after {after!r} are {numbers[0]} and not {numbers[1]}")
        self._after = expected[-1][0] if expected else after
        return goes_on is not None

    def _number(self, event: dict[str, Any]) -> int:
        if "dead_letter" in event:
            number = self._world.wire.key_number(event["key"])
            return number if number in self._world.watch.marked else -1
        return self._world.wire.number_of(event["key"], event.get("data", ""))

    # --- the status ---------------------------------------------------------------------------------------------------

    def status(self) -> None:
        """Reads the status once."""
        world = self._world
        records = self._records.read(world.stream)
        if records is None:
            return
        said = status.answer(world.stream, records, self._clock.now_ms(), self._dead_after_ms, RETRIES)
        known = {one.fence: bool(one.ended_by) for one in records.connections}
        wrong = [*self._wrong_counts(said, known), *self._wrong_word(said["status"])]
        coverage = said["coverage"]
        # After another start, the status does not show the time before it.
        if coverage is not None and coverage["reaches_start"] and len(requests(world.schedule)) == 1:
            wrong += self._wrong_gaps(coverage, records.repairs)
            wrong += wrong_shares(world, coverage, self._shown_until_ms)
            wrong += wrong_waiting(world, coverage, self._dead_after_ms, is_settled=self._is_settled())
        for text in wrong:
            world.blame("wrong-status", text)

    def _wrong_gaps(self, coverage: dict[str, Any], repairs: Sequence[tuple[Gap, Repair]]) -> Iterator[str]:
        """Yields the gaps that differ from those in the records of all connections and the announced losses."""
        world = self._world
        spans = {
            state: {
                (gap["from_at"], gap["to_at"]) for gap in coverage["gaps"] if gap["state"] == state and gap["to_at"]
            }
            for state in (DELIVERED, OPEN)
        }
        self._delivered |= spans[DELIVERED]
        again = [
            (span, past) for span in spans[OPEN] for past in self._delivered if span[0] < past[1] and past[0] < span[1]
        ]
        if again and not world.watch.ids.has_restarted:
            yield f"gaps are open that were delivered: {again}"
        records = list(self._records_with_ends())
        losses = [Gap(fence, *span, "", LOST, count) for (fence, count), span in world.watch.losses.items() if count]
        known = [*find_gaps(records, self._clock.now_ms(), self._dead_after_ms), *correct_losses(losses, records)]
        expected = sorted((to_iso(gap.from_ms), to_iso(gap.to_ms), gap.state) for gap in apply_repairs(known, repairs))
        # No connection ends the gap after the last connection; only the end of the stream does.
        last = to_iso(max(record.last_ms for record in records)) if records else None
        # An announced loss may begin at the same instant.
        told = [gap for gap in coverage["gaps"] if gap["to_at"]]
        ended = [gap for gap in told if gap["from_at"] != last or gap["state"] == LOST]
        shown = sorted((gap["from_at"], gap["to_at"], gap["state"]) for gap in ended)
        if shown != expected:
            yield f"the gaps {shown} are shown, and there are {expected}"

    def _records_with_ends(self) -> Iterator[Record]:
        """Yields the ledger's records; if a function has connected again, its former record ends when last seen."""
        known = {typed_values.read_int(row, "fence") for row in ledger_rows(self._world)}
        over: set[int] = set()
        for slot in self._world.slots:
            own = sorted(slot.fences & known)
            over.update(own[:-1])
        for record in ledger(self._world):
            is_over = record.closed_ms is None and record.fence in over
            yield replace(record, closed_ms=max(record.opened_ms, record.seen_ms)) if is_over else record

    def _wrong_counts(self, said: dict[str, Any], known: dict[int, bool]) -> Iterator[str]:
        """Yields the counts that differ from the sums of the known connections, or exceed them where `at_least` is set.

        `known` says whether each connection has an end. Without an end, the last heartbeat may have been written after
        a successor had read the record and before the successor overwrote it.
        """
        counts, watch = said["counts"], self._world.watch
        there = sum(count for fence, count in watch.stored_by.items() if fence in known)
        # A connection without an end still writes, and may not have reported everything.
        is_all = not counts["at_least"] and sum(counts["ends"].values()) == counts["connections"]
        is_true = counts["stored"] == there if is_all else counts["stored"] <= there
        if not is_true:
            yield f"{counts['stored']} events are counted as stored, at_least {counts['at_least']}, and {there} are"
        most = _sums(watch.most_counts, known)
        least = _sums(watch.counts, (fence for fence, is_ended in known.items() if is_ended))
        shown = [counts[name] for name in ("stored", "duplicates", "dead_lettered")]
        if not all(low <= count <= high for low, count, high in zip(least, shown, most, strict=True)):
            yield f"the counts {counts} are not the sums of the connections' {most}, {least} of those that ended"

    def _wrong_word(self, word: str) -> Iterator[str]:
        """Yields the mistakes of a status that hold at any time, and those that hold if nothing has changed of late."""
        world, now_ms = self._world, self._clock.now_ms()
        ends = {end for execution in world.executions if (end := end_word(execution))}
        yield from self._complain_if_unfounded(word, ends)
        asked = [(world.origin_ms + at_ms, method) for at_ms, method in requests(world.schedule)]
        past = [(at_ms, method) for at_ms, method in asked if at_ms < now_ms]
        is_stop = past[-1][1] == "DELETE" and asked[-1][0] < now_ms
        if is_stop and word not in {"stopping", "stopped", *ends}:
            yield f"the status is {word}, and a stop was requested last"
        expected = self._expected(past[-1][1], ends)
        if expected and word not in expected and self._is_settled():
            yield f"the status is {word} and not {' or '.join(sorted(expected))}, though nothing changed of late"

    def _complain_if_unfounded(self, word: str, ends: Container[str]) -> Iterator[str]:
        """Yields a complaint if nothing can have led to the status; `ends` are the final statuses of executions."""
        world, now_ms = self._world, self._clock.now_ms()
        methods = {method for at_ms, method in requests(world.schedule) if world.origin_ms + at_ms <= now_ms}
        links = world.upstream.links
        refused = {link.refused_with for link in links}
        # The last instant with a connection, as far as the functions can know.
        closed = [(link.closed_ms, link.function) for link in links if link.opened_ms and link.closed_ms]
        until_ms = max((noticed_ms(world, at_ms) if by.was_frozen else at_ms for at_ms, by in closed), default=0)
        until_ms = now_ms if world.upstream.open_links else until_ms
        reasons = {
            "ended": 204 in refused,
            "rejected": not refused.isdisjoint(REFUSALS),
            "broken": "broken" in ends,
            "stopping": "DELETE" in methods,
            "stopped": "DELETE" in methods,
            "running": now_ms <= self._shown_until_ms(until_ms),
            "unknown": False,
        }
        if not reasons.get(word, True):
            yield f"the status is {word}, and there is no reason for that"

    def _shown_until_ms(self, over_ms: int) -> int:
        """Returns until when a stream may be shown as connected whose last connection ended at `over_ms`."""
        return self._released_by_ms(over_ms + self._dead_after_ms + SLACK_MS + 2 * self._world.schedule.skew_ms)

    def _released_by_ms(self, until_ms: int) -> int:
        """Returns until when a stream that was connected until `until_ms` may be taken for connected."""
        return until_ms

    def _expected(self, asked: str, ends: set[str]) -> set[str]:
        """Returns the possible statuses once everything is recorded; nothing if they cannot be known.

        `ends` are the final statuses of executions. The claim of an execution that a person aborted remains.
        """
        world = self._world
        is_open = any(link.function.is_alive for link in world.upstream.open_links)
        runs = any(execution.status == "RUNNING" for execution in world.executions)
        if not runs and any(execution.status == "ABORTED" for execution in world.executions):
            return set()
        if not runs:
            return (ends - {"stopped"}) | ({"stopping" if is_open else "stopped"} if "stopped" in ends else set())
        if asked == "DELETE":
            return {"stopping", *ends}
        if (over := final_status(world)) in ("ended", "rejected"):
            return {over}  # a predecessor's connected function reads on, and its execution waits for it
        words = {"running"} if is_open else {"starting", "reconnecting"}
        return words | {"stopping"} if self._is_held_by_stopped() else words

    def _is_held_by_stopped(self) -> bool:
        """Returns whether the stream's holder should stop, but none of its functions has seen the request yet."""
        world = self._world
        stopped_ms = [
            at_ms
            for at_ms, method in requests(world.schedule)
            if method == "DELETE" and world.origin_ms + at_ms <= self._clock.now_ms()
        ]
        holder = world.account.executions.get(typed_values.read_text(lease(world), "execution") or "")
        return bool(stopped_ms) and holder is not None and holder.started_ms < world.origin_ms + max(stopped_ms)

    def _is_settled(self) -> bool:
        """Returns whether nothing has changed for so long that everything is recorded."""
        world, now_ms = self._world, self._clock.now_ms()
        since_ms = now_ms - self._dead_after_ms - SETTLED_MS - self._world.schedule.skew_ms
        if "execution" not in lease(world):
            # A claim that found the lease of another execution backs off before the next try.
            since_ms -= 1000 * int(world.settings["cool_down_s"] + world.settings["jitter_s"])
        for fault in world.schedule.faults:
            if fault.kind in SETTLE_AFTER_MS:
                from_ms = world.origin_ms + fault.at_ms
                until_ms = from_ms + fault.for_ms + SETTLE_AFTER_MS[fault.kind]
                if from_ms <= now_ms and until_ms >= since_ms:
                    return False
        changes = [
            world.origin_ms + at_ms for at_ms, _ in requests(world.schedule) if world.origin_ms + at_ms <= now_ms
        ]
        for link in world.upstream.links:
            changes += [
                at_ms for at_ms in (link.asked_ms, link.opened_ms, link.closed_ms, link.function.died_ms) if at_ms
            ]
        changes += [at_ms for one in world.executions for at_ms in (one.started_ms, one.stopped_ms) if at_ms]
        return max(changes) < since_ms


def _sums(told: Mapping[int, tuple[int, int, int]], fences: Iterable[int]) -> list[int]:
    """Returns the sums of these connections' reports: stored, duplicates, dead-lettered."""
    return [sum(of) for of in zip(*(told[fence] for fence in fences if fence in told), strict=True)] or [0, 0, 0]
