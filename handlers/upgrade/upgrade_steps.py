"""Carries out the steps of an upgrade, one at a time, as its machine requests.

Each step may be repeated, because it finds the work that is done already. A step that has more to do than its time
allows returns the place at which to continue.

A stream's place is a hash of its id, so a wave is a range of places, and its members need not be stored. Of 1,000
streams the first wave is [0, 43 M) with 10 streams, the next [43 M, 86 M) with 10 more, then 20.

Invariants: the waves of an upgrade adjoin and reach WHOLE, and none is empty while streams are left; the lease holds
the version before the successor that reads it is started; the alias moves only after the last wave; alias and
definition are as before when the first stream goes back.
"""

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from handlers.api.verdict import plural
from handlers.aws.executions import is_running
from handlers.connection.orphans import start_input
from handlers.store.typed_values import Item
from handlers.upgrade import health
from handlers.upgrade.deployed_versions import LATEST, Clients, Deployed, UpgradeRefused
from handlers.upgrade.health import Limits, Stream, Verdict
from handlers.upgrade.upgrade_items import MARK, asked_of, execution_of, is_asked, lease_of, to_stream, was_ended
from handlers.upgrade.upgrade_records import UpgradeRecords
from handlers.values import dataclass

# One past the last place.
WHOLE = 1 << 32
# The first wave has one stream in FIRST_PART, but at least FEW.
FEW, FIRST_PART = 3, 100
# The number of streams of a wave whose connections are read, and the number of those of earlier waves.
CLOSELY, CLOSELY_BEFORE = 200, 50


@dataclass
class Work:
    """The steps; `is_late` returns whether a step must end now, `execution` is the upgrade's."""

    records: UpgradeRecords
    clients: Clients
    execution: str
    now_ms: Callable[[], int]
    is_late: Callable[[], bool]

    def __post_init__(self) -> None:
        self._deployed = Deployed(self.clients, self.records)

    def check(self) -> dict[str, Any]:
        """Returns the versions that streams will run and run now, and the machine's version; raises UpgradeRefused."""
        last = self.records.read()
        before = last.execution
        # If the check is repeated, its record may have a request to go back by now.
        if before != self.execution:
            if before and is_running(self.clients.states, before):
                raise UpgradeRefused(f"Another upgrade runs, {before.rpartition(':')[2]}.")
            if not self.records.begin(self.execution, before):
                raise UpgradeRefused("Another upgrade has just begun.")
        stable, version = self._deployed.alias_version(), self._deployed.publish_function()
        if version != stable:
            self._deployed.check_start(version)
        definition = self._deployed.target_version(last)
        # If every stream runs the deployed version, there is nothing to compare. An earlier upgrade may have ended
        # without its last writes.
        is_new = version != stable or definition != (last.definition or definition)
        self._note(f"version {version} starts; {stable} is what streams run now")
        return {
            "version": version,
            "stable": stable,
            "definition": definition,
            "is_needed": is_new and stable != LATEST,
        }

    def plan(self, begin: int) -> dict[str, Any]:
        """Returns where the wave that begins at place `begin` ends, and how many streams it has."""
        places = sorted(place(stream_id) for stream_id in self.records.held_ids())
        end = wave_end(places, begin)
        size = sum(begin <= one < end for one in places)
        wave = f"a wave of {size} of {plural(len(places), 'stream')}, after {sum(one < begin for one in places)}"
        self._note(wave if size else "no stream is left to hand over")
        return {"end": end, "size": size, "is_aborted": self.records.read().is_aborted}

    def hand_over_wave(self, version: str, definition: str, begin: int, end: int) -> dict[str, Any]:
        """Makes the streams from place `begin` on hand over to `version`, by the machine's version `definition`.

        Returns the place from which to continue.
        """
        ids = sorted((one for one in self.records.held_ids() if begin <= place(one) < end), key=place)
        for stream_id, item in self._items(ids):
            if self.is_late():
                return {"begin": place(stream_id), "is_done": False}
            # If a stream was asked already, its start may have been lost: it is asked again, with all its time.
            if item is not None and (not is_asked(item, version) or asked_of(item)[1] == lease_of(item).execution):
                self._hand_over(item, version, definition)
        return {"begin": end, "is_done": True}

    def judge_waves(self, version: str, begin: int, end: int, limits: Limits) -> dict[str, Any]:
        """Returns the verdict on the streams that were asked: the wave from `begin` on, and earlier waves."""
        if self.records.read().is_aborted:
            return {"state": health.State.WORSE.value, "reasons": "a roll-back was requested"}
        items = list(self.records.marked(lambda stream_id: place(stream_id) < end))
        ordered = sorted(items, key=lambda item: place(item["PK"]["S"]))
        wave = [item for item in ordered if place(item["PK"]["S"]) >= begin]
        earlier = [item for item in ordered if place(item["PK"]["S"]) < begin]
        streams = [
            *self._streams(wave, version, CLOSELY, limits),
            *self._streams(earlier, version, CLOSELY_BEFORE, limits),
        ]
        return self._answer(health.judge_wave(streams, limits), streams)

    def promote(self, version: str, definition: str, begin: int) -> dict[str, Any]:
        """Moves the alias, and removes the upgrade's marks from place `begin` on; returns where to continue."""
        if begin == 0:
            self._deployed.redeploy_put_aside(self.records.read())
            self._deployed.move_alias(version)
            self.records.promote(self.execution, definition)
            self._deployed.delete_old_versions(definition)
        return self._settle(begin, lambda item: is_asked(item, version))

    def hand_back(self, version: str, stable: str, begin: int) -> dict[str, Any]:
        """Makes the streams that were asked hand over to their former version; returns where to continue.

        Streams of no wave come last, after a delay, because an execution that started a moment after the former
        definition was deployed may still have the other one.
        """
        if begin == 0:
            self._deployed.move_alias(stable)
            self._deployed.restore_definition(self.records.read())
        upgrade = self.records.read()
        former = upgrade.definition or self.clients.machine_arn
        runs_another = self._deployed.other_definition_test(upgrade)
        if begin >= WHOLE:
            return self._hand_back_others(begin - WHOLE, former, runs_another)
        items = sorted(self.records.marked(lambda one: place(one) >= begin), key=lambda item: place(item["PK"]["S"]))
        for item in items:
            if self.is_late():
                return {"begin": place(item["PK"]["S"]), "is_done": False}
            if is_asked(item, version) and lease_of(item).execution:
                if asked_of(item)[1] == lease_of(item).execution:
                    # It has not handed over: its execution continues, and a late successor reads that the mark is gone.
                    self.records.remove_marks(item)
                else:
                    self._hand_over(item, "", former)
            elif is_asked(item, version) and was_ended(item):
                self._hand_over(item, "", former)
            elif is_asked(item, version):
                self.records.remove_marks(item)
            elif is_asked(item, "") and lease_of(item).execution in ("", asked_of(item)[1]) and not was_ended(item):
                self._hand_over(item, "", former)  # As in `hand_over_wave`: its start may have been lost.
        return {"begin": WHOLE, "is_done": runs_another is None}

    def _hand_back_others(self, begin: int, former: str, runs_another: Callable[[str], bool] | None) -> dict[str, Any]:
        """Makes streams of no wave hand over if their execution has the definition that is no longer deployed.

        Their places come after those of the waves' streams.
        """
        if runs_another is None:
            return {"begin": WHOLE, "is_done": True}
        ids = sorted((one for one in self.records.held_ids() if place(one) >= begin), key=place)
        for stream_id, item in self._items(ids):
            if self.is_late():
                return {"begin": WHOLE + place(stream_id), "is_done": False}
            execution = "" if item is None else lease_of(item).execution
            if item is None or not execution or (is_asked(item, "") and asked_of(item)[1] != execution):
                continue
            self.clients.take()
            if runs_another(execution):
                self._hand_over(item, "", former)
        return {"begin": WHOLE, "is_done": True}

    def judge_return(self, limits: Limits) -> dict[str, Any]:
        """Returns whether the streams that went back are connected again and the upgrade's marks are removed.

        Before that, it records their losses. Marks that it has no time to remove are left to the next call.
        """
        now_ms = self.now_ms()
        items = [item for item in self.records.marked(lambda _: True) if is_asked(item, "")]
        streams = [to_stream(item, "", now_ms) for item in items]
        verdict = health.judge_return(streams, limits)
        if verdict.state is health.State.WELL and self._still_loses(items, now_ms, limits):
            verdict = Verdict(health.State.WAITING, {})
        if verdict.state is not health.State.WAITING:
            for item in items:
                self.records.write_losses(item, now_ms)
        if verdict.state is health.State.WELL and not self._settle(0, lambda item: is_asked(item, ""))["is_done"]:
            verdict = Verdict(health.State.WAITING, {})
        return self._answer(verdict, streams)

    # --- helpers of the steps -----------------------------------------------------------------------------------------

    def _still_loses(self, items: Iterable[Item], now_ms: int, limits: Limits) -> bool:
        """Returns whether a stream whose events were lost is not connected yet, and still has time."""
        longest_ms = limits.answer_ms + limits.away_ms
        young = (item for item in items if now_ms - asked_of(item)[0] <= longest_ms)
        return any(not has_ended for item in young for _, has_ended in self.records.loss_gaps(item, now_ms))

    def _items(self, ids: Sequence[str]) -> Iterator[tuple[str, Item | None]]:
        for first in range(0, len(ids), 100):
            some = ids[first : first + 100]
            items = self.records.read_leases(some)
            yield from ((stream_id, items.get(stream_id)) for stream_id in some)

    def _hand_over(self, item: Item, version: str, definition: str) -> None:
        """Writes the version, "" for the alias, and starts the successor of the execution that holds the stream.

        `definition` is the ARN by which the successor is started: a version of the machine, or the machine itself.
        """
        now_ms = self.now_ms()
        # A stream of no wave ran the former version, which loses no events.
        lost = {} if version or MARK not in item else self.records.find_losses(item, now_ms)
        if self.records.request_version(item, version, now_ms, lost):
            self._start(item, version, definition)

    def _start(self, item: Item, version: str, definition: str) -> None:
        stream_id, execution = item["PK"]["S"], execution_of(item)
        client = self.clients.states
        self.clients.take()
        try:
            client.start_execution(
                stateMachineArn=definition,
                name=successor_name(execution, self.execution, version),
                input=start_input(stream_id, execution),
            )
        except client.exceptions.ExecutionAlreadyExists:
            return  # The successor is over already; the next `judge_waves` judges the stream.

    def _streams(self, items: Iterable[Item], version: str, closely: int, limits: Limits) -> Iterator[Stream]:
        now_ms = self.now_ms()
        for number, item in enumerate(items):
            if not asked_of(item)[1]:
                continue
            if number >= closely or not is_asked(item, version) or self.is_late():
                yield to_stream(item, version, now_ms)
                continue
            did = self.records.stretches(item, now_ms, limits.answer_ms)
            yield to_stream(item, version, now_ms, did, self.records.newest_ms(item))

    def _settle(self, begin: int, wanted: Callable[[Item], bool]) -> dict[str, Any]:
        for item in sorted(self.records.marked(lambda one: place(one) >= begin), key=lambda one: place(one["PK"]["S"])):
            if self.is_late():
                return {"begin": place(item["PK"]["S"]), "is_done": False}
            if wanted(item):
                self.records.remove_marks(item)
        return {"begin": WHOLE, "is_done": True}

    def _answer(self, verdict: Verdict, streams: Sequence[Stream]) -> dict[str, Any]:
        over = sum(stream.has_handed_over for stream in streams)
        if streams:
            self._note(f"{over} of {plural(len(streams), 'stream')} that were asked have handed over")
        return {"state": verdict.state.value, "reasons": verdict.words()}

    def _note(self, progress: str) -> None:
        self.records.save_progress(self.execution, progress)


def step(work: Work, event: Mapping[str, Any]) -> dict[str, Any]:
    """Carries out the step that `event` names, and returns its answer."""
    version, begin = event.get("version", ""), event.get("begin", 0)
    steps: dict[str, Callable[[], dict[str, Any]]] = {
        "check": work.check,
        "plan": lambda: work.plan(begin),
        "ask": lambda: work.hand_over_wave(version, event["definition"], begin, event["end"]),
        "look": lambda: work.judge_waves(version, begin, event["end"], limits(event)),
        "promote": lambda: work.promote(version, event["definition"], begin),
        "back": lambda: work.hand_back(version, event["stable"], begin),
        "look back": lambda: work.judge_return(limits(event)),
    }
    return steps[event["step"]]()


def limits(event: Mapping[str, Any]) -> Limits:
    """Returns the limits in the event: how long a handover may take, a stream may be away, and a wave is watched."""
    return Limits(*(round(1000 * event[name]) for name in ("answer_s", "away_s", "watch_s")))


def successor_name(execution: str, upgrade: str, version: str) -> str:
    """Returns the name of the successor of `execution` for `version`: the same in each try."""
    text = json.dumps([execution, upgrade, version])
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest() + "-upgrade"


def place(stream_id: str) -> int:
    """Returns the stream's place, from 0 to WHOLE - 1."""
    return zlib.crc32(stream_id.encode())


def wave_end(places: Iterable[int], begin: int) -> int:
    """Returns where the wave that begins at place `begin` ends; `places` are those of all streams."""
    ordered = sorted(places)
    waiting = [one for one in ordered if one >= begin]
    gone = len(ordered) - len(waiting)
    size = max(FEW, gone if begin else len(ordered) // FIRST_PART)
    # Two streams with the same place go together.
    return waiting[size - 1] + 1 if size < len(waiting) else WHOLE
