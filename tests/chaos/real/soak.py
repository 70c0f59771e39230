"""The soak: the local service keeps streams of every shape while its processes, network and disk fail.

`make soak MINUTES=20 SEED=7`; the seed gives the faults and their order. Meanwhile the API is read for statuses and new
events, and in the end everything is compared with the upstream's journal (`judge.py`). Invariant: an end by Ctrl-C is
judged like any other.
"""

import argparse
import contextlib
import itertools
import json
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any

from handlers.api.verdict import plural
from handlers.aws.lambda_environment import now_ms
from local.permissions import guard
from states_language.server.journals import Journals
from states_language.server.stored_events import StoredEvents
from tests.chaos.real.faults import FAULTS, Scene, draw_steps, pause
from tests.chaos.real.judge import Answers, Case, judge, until_connected
from tests.chaos.real.proxy import Proxy
from tests.chaos.real.shapes import ALONE, GROUPED, INTERVAL_MS, KINDS, STREAMS, TOGETHER, Journal, project, text
from tests.harness import Service
from tests.planted.table import Change
from tests.projects import changed
from tests.real.upstream import serving

# After so many faults all streams must store again, and then there are no faults for a while.
FAULTS_IN_A_ROW = 4
CALM_S = 12.0
# A lane that waits after a drop takes longer; a sound one takes three, and ten on a busy machine.
RECOVERED_WITHIN_S = 25.0
# A gap counts as delivered once the connection after it has lasted for as long as it was behind, at the latest.
CLOSED_WITHIN_S = 60.0
ANSWERED_WITHIN_S = 600.0


@dataclass
class Soak:
    """A running soak: the API's answers so far, the times of trouble, and the broken rules."""

    scene: Scene
    began_s: float = field(default_factory=time.monotonic)
    told: dict[str, Answers] = field(default_factory=lambda: {stream: Answers() for stream in STREAMS})
    troubles: list[tuple[int, int]] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    over: threading.Event = field(default_factory=threading.Event)

    def say(self, line: str) -> None:
        """Prints a line of progress."""
        print(f"{time.monotonic() - self.began_s:7.1f} s  {line}", flush=True)

    # --- answers of the API -------------------------------------------------------------------------------------------

    def ask(self, path: str) -> Any:
        """Returns the JSON of a GET below /connections; None if the service is away or cannot answer now."""
        with contextlib.suppress(OSError, HTTPException, ValueError):
            code, answer = self.scene.service.ask("GET", path)
            return answer if code == 200 else None
        return None

    def sample(self) -> None:
        """Reads the statuses again and again, until the soak is over."""
        while not self.over.wait(0.3):
            asked_ms, listed = now_ms(), self.ask("?limit=1000")
            for one in listed["streams"] if listed else ():
                self.told[one["stream"]].statuses.append((asked_ms, now_ms(), one["status"]))

    def follow(self) -> None:
        """Reads the new events of one stream after the other, until the soak is over."""
        after: dict[str, str] = {}
        for stream in itertools.cycle(STREAMS):
            page = self.ask(f"{stream}/events?limit=1000{after.get(stream, '')}")
            for event in page["events"] if page else ():
                self.told[stream].seen += numbers(event, [])
                after[stream] = f"&after={event['position']}"
            if self.over.wait(0.05):
                return

    def pages(self, stream: str, what: str) -> Iterator[Any]:
        """Yields all of a stream's events or gaps; a busy machine may answer late."""
        after, end_s = "", time.monotonic() + ANSWERED_WITHIN_S
        while after is not None:
            page = self.ask(f"{stream}/{what}?limit=1000{after and f'&after={after}'}")
            assert page or time.monotonic() < end_s, f"the API does not answer: {self.scene.service.log}"
            if page is None:
                pause(1)
                continue
            yield from page[what]
            after = page["next"]

    def read_gaps(self, stream: str) -> list[tuple[int, int]]:
        """Returns the gaps of a stream that were not delivered; an open one ends now."""
        return [
            (_ms(gap["from_at"]), _ms(gap["to_at"]) if gap["to_at"] else now_ms())
            for gap in self.pages(stream, "gaps")
            if gap["state"] in ("open", "lost")
        ]

    # --- the course ---------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Starts the streams, and returns once each has stored an event and saved its cursor."""
        self.scene.start()
        for stream in ALONE:
            self.scene.service.post(stream)
        changed(self.scene.service.project / "env" / "test.yml", GROUPED)
        self.scene.service.end()
        self.scene.start()
        for stream in TOGETHER:
            self.scene.service.post(stream)
        for reader in (self.sample, self.follow):
            threading.Thread(target=reader, daemon=True).start()
        self.settle(now_ms())
        groups = Counter(one.get("group", "") for one in self.ask("?limit=1000")["streams"])
        assert groups == {"": len(ALONE), "#1": 5, "#2": 5}, groups
        self.say(f"{len(STREAMS)} streams of {len(KINDS)} kinds store events, half of them in groups")

    def go_wrong(self, seed: int, until_s: float) -> None:
        """Causes one fault after the other; after some of them, each stream must recover."""
        since_ms = now_ms()
        for count, step in enumerate(draw_steps(seed), 1):
            if time.monotonic() > until_s:
                return
            self.say(f"{step.fault:<20} {step.lasts_s:.1f} s, {step.which:.2f}")
            self.done[step.fault] += 1
            # The trouble lasts until they have recovered, also if it is interrupted.
            self.troubles.append((since_ms, 10**15))
            FAULTS[step.fault](self.scene, step)
            pause(step.rest_s)
            if count % FAULTS_IN_A_ROW == 0:
                self.settle(since_ms)
                pause(CALM_S)
                since_ms = now_ms()

    def settle(self, since_ms: int) -> None:
        """Waits until each stream has stored an event that happens from now on, and ends the time of trouble."""
        number, end_s, waiting = now_ms() // INTERVAL_MS + 1, time.monotonic() + RECOVERED_WITHIN_S, STREAMS
        while waiting and time.monotonic() < end_s:
            pause(0.5)
            waiting = [stream for stream in waiting if max(self.told[stream].seen[-50:], default=0) < number]
        if waiting:
            self.scene.broken.append(f"not connected again within {RECOVERED_WITHIN_S:g} s: {', '.join(waiting)}")
        self.troubles = [span for span in self.troubles if span[0] < since_ms] + [(since_ms, now_ms())]
        self.say(
            f"{plural(sum(len(told.seen) for told in self.told.values()), 'event')}; "
            f"{plural(len(waiting), 'stream')} not connected"
        )

    def collect(self) -> None:
        """Reads all events, and the gaps after the upstreams' resends have closed those that they can."""
        self.settle(self.troubles[-1][0] if self.troubles else now_ms())
        end_s = time.monotonic() + CLOSED_WITHIN_S
        self.say("waits until what is delivered is told so")
        pause(CALM_S)
        resuming = [stream for stream in STREAMS if KINDS[stream.partition(":")[0]].resumes]
        while time.monotonic() < end_s and any(self.read_gaps(stream) for stream in resuming):
            pause(2)
        self.over.set()
        for stream, told in self.told.items():
            told.gaps = self.read_gaps(stream)
            for event in self.pages(stream, "events"):
                told.stored += numbers(event, told.torn)

    def verdict(self, data: Path) -> int:
        """Prints the result in plain words and returns the exit status."""
        broken, records = self.scene.broken, Journals(data / "executions")
        for record in records.read_all():
            ids = [event["id"] for event in StoredEvents(record.path)]
            if ids != [*range(1, len(ids) + 1)]:
                broken.append(f"the history of {record.path.name} has a hole")
        scene, told = self.scene, self.told.values()
        cases = [
            Case(stream, one, scene.journal, self.troubles, away, scene.silences)
            for stream, one in self.told.items()
            for away in [until_connected(scene.journal, stream, scene.away.get(stream, ()))]
        ]
        broken += [sentence for case in cases for sentence in judge(case)]
        faults = ", ".join(f"{count} {name}" for name, count in sorted(self.done.items()))
        stored, gaps, read = (sum(len(getattr(one, name)) for one in told) for name in ("stored", "gaps", "statuses"))
        held = "Nothing lost outside a gap, nothing twice, nothing torn, and no status contradicts the journal."
        print(
            *(f"BROKEN {sentence}" for sentence in broken),
            f"{plural(sum(self.done.values()), 'fault')}: {faults}.",
            f"{plural(stored, 'event')} stored, {sum(len(one.missing) for one in cases)} missing, "
            f"{plural(gaps, 'gap')}, {plural(read, 'reading')} of a status.",
            f"{plural(len(broken), 'contradiction')}." if broken else held,
            sep="\n",
        )
        return int(bool(broken))


def numbers(event: dict[str, Any], torn: list[str]) -> list[int]:
    """Returns the number of a stored event; an event that differs from the sent one joins `torn` and has no number."""
    data = event.get("data", "bytes")
    with contextlib.suppress(ValueError, KeyError, TypeError):
        number: int = json.loads(data)["n"]
        if data == text(number):
            return [number]
    torn.append(data)
    return []


def _ms(instant: str) -> int:
    return round(datetime.fromisoformat(instant).timestamp() * 1000)


@contextlib.contextmanager
def soaking(folder: Path, changes: Iterable[Change]) -> Iterator[Soak]:
    """Yields a soak whose streams all store; afterwards no process of it is left running."""
    journal = Journal()
    with contextlib.ExitStack() as stack:
        behaviours = {name: kind.behaviour() for name, kind in KINDS.items()}
        upstreams, port = stack.enter_context(serving(journal.watch, behaviours, journal.around))
        proxy = stack.enter_context(contextlib.closing(Proxy(port)))
        # The functions reach the database directly, so that its faults affect them.
        variables = {"UPSTREAM_DEMO": f"http://127.0.0.1:{proxy.port}", guard.SETTING: ""}
        service = Service(folder, project(folder / "project", changes), **variables)
        soak = Soak(Scene(service, upstreams, journal, proxy))
        try:
            soak.begin()
            yield soak
        finally:
            soak.over.set()
            if service.process is not None and service.process.poll() is None:
                service.end()


def main(arguments: list[str], changes: Iterable[Change] = ()) -> int:
    """Soaks for some minutes, with planted defects; returns 0, or 1 for contradictions, and then keeps the folder."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    asked = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="streamkeeper-soak-"))
    print(f"SEED={asked.seed} MINUTES={asked.minutes:g}, in {folder}", flush=True)
    with soaking(folder, changes) as soak:
        try:
            soak.go_wrong(asked.seed, time.monotonic() + asked.minutes * 60)
        except KeyboardInterrupt:
            soak.say("Ctrl-C: no more faults; what was seen is judged")
        soak.collect()
        status = soak.verdict(folder / "data")
    if status == 0:
        shutil.rmtree(folder)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
