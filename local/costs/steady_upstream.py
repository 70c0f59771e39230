"""An upstream in virtual time that sends events at a steady mean rate to all connections, and resumes.

An event has an id that counts from 1, and a JSON body of a chosen size that varies like that of a feed. All connections
get the same events at the same instants; an opening with an id first gets what came after it. Invariant: the same
`seed` gives the same instants, whoever is connected.
"""

import hashlib
import json
import math
import random
from bisect import bisect_right

from handlers.connection.inputs import Chunk
from local.simulation.scenario import Upstream
from local.simulation.scripted_upstream import Link, ScriptedUpstream
from local.simulation.virtual_ports import Client
from states_language.clock import Clock

# Events that come closer together than this are read from a socket at once.
TICK_MS = 20
# The largest delay of a clock's event.
LATE_MS = 200
KEEP_RULE = {"name": ["message"]}
_NAMES = ("edit", "new", "log", "categorize")
_DIGEST_BYTES = 4


class SteadyUpstream(ScriptedUpstream):
    """Sends `events_per_s` events of `event_bytes` bytes of JSON each; an opening is answered after `connect_ms`.

    They come at random, like those of many sources (a Poisson process), or by a clock (`is_clocked`), each a little
    late because of the network: otherwise they would come at the very instants at which segments are due. Many events
    in a second come evenly, which makes no difference. A share of `kept` fits the rule `KEEP_RULE`.
    """

    def __init__(
        self,
        clock: Clock,
        events_per_s: float,
        event_bytes: int,
        connect_ms: int,
        seed: int = 1,
        is_clocked: bool = False,
        kept: float = 1,
    ) -> None:
        super().__init__(clock, Upstream(), clock.now_ms(), lambda: connect_ms)
        self._is_clocked = is_clocked
        self._kept = kept
        self._draws = random.Random(seed)
        self._instants_ms: list[float] = []
        self._events_per_s = events_per_s
        self._event_bytes = event_bytes
        self._sent: dict[Link, int] = {}  # the last event of each link

    def open(self, client: Client, cursor: str | None) -> Link:
        """A link that brings what came after the cursor, or from now on if there is none."""
        link = super().open(client, cursor)
        self._sent[link] = self.count_sent() if cursor is None else int(cursor)
        return link

    def count_sent(self) -> int:
        """The number of events so far."""
        age_ms = self._clock.now_ms() - self._origin_ms
        if self._sends_by_tick or not self._events_per_s:
            return int(age_ms * self._events_per_s / 1000)
        self._draw_instants_until(age_ms)
        return bisect_right(self._instants_ms, age_ms)

    def _answer(self, link: Link) -> None:
        if link.closed_ms is not None:
            return
        if not self._links and self._events_per_s:
            self._next_tick()
        super()._answer(link)
        self._send(link)

    def _next_tick(self) -> None:
        """Sends the next event at its instant, or those of a tick if they come closer together."""
        at_ms = self._clock.now_ms() + TICK_MS
        if not self._sends_by_tick:
            at_ms = self._origin_ms + math.ceil(self._instants_ms[self.count_sent()])
        self._clock.call_at(at_ms, self._tick)

    @property
    def _sends_by_tick(self) -> bool:
        return self._events_per_s * TICK_MS > 1000

    def _draw_instants_until(self, age_ms: int) -> None:
        """Draws the instants of events until one lies in the future."""
        while not self._instants_ms or self._instants_ms[-1] <= age_ms:
            last_ms = self._instants_ms[-1] if self._instants_ms else 0.0
            if self._is_clocked:
                tick_ms = (len(self._instants_ms) + 1) * 1000 / self._events_per_s
                self._instants_ms.append(max(last_ms, tick_ms + self._draws.uniform(0, LATE_MS)))
            else:
                self._instants_ms.append(last_ms + self._draws.expovariate(self._events_per_s / 1000))

    def _tick(self) -> None:
        for link in list(self._links):
            self._send(link)
        if self._links:
            self._next_tick()

    def _send(self, link: Link) -> None:
        first = self._sent[link] + 1
        last = self._sent[link] = max(self._sent[link], self.count_sent())
        frames = [event_frame(number, self._event_bytes, self._kept) for number in range(first, last + 1)]
        if frames and link.is_open:
            link.client.take_arrival(link, Chunk(b"".join(frames)))


def event_frame(number: int, event_bytes: int, kept: float = 1) -> bytes:
    """One event as bytes of the stream; those that are not kept, evenly spread, have a name."""
    name = b"" if int(number * kept) > int((number - 1) * kept) else b"event: other\n"
    return b"id: %d\n%sdata: %s\n\n" % (number, name, event_body(number, event_bytes).encode())


def event_body(number: int, event_bytes: int) -> str:
    """The body of an event, of `event_bytes` bytes: JSON, or its beginning if that is longer."""
    fields = {"n": number, "type": _NAMES[number % len(_NAMES)]}
    text = json.dumps(fields, separators=(",", ":"))
    length = event_bytes - len(text) - len(',"text":""')
    if length < 0:
        return text[:event_bytes].ljust(event_bytes)
    # Texts, half of which repeat from event to event.
    before, behind = f"user-{number % 97} changed page ", f" of the wiki at {1_767_225_600 + number}, "
    parts = range(-(-length // (len(before) + len(behind) + 2 * _DIGEST_BYTES)))
    digests = (hashlib.blake2b(b"%d %d" % (number, part), digest_size=_DIGEST_BYTES).hexdigest() for part in parts)
    words = "".join([f"{before}{digest}{behind}" for digest in digests])
    return f'{text[:-1]},"text":"{words[:length]}"}}'
