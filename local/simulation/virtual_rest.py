"""Simulates the repair address of a stream: it pages, lags, refuses, repeats, and sometimes lies.

    GET /events?after=7&before=12&limit=3    {"events": [...], "next": "11"}     of the events 8 to 11

Its events are the wire's own JSON. Invariants: it invents no event; unless it lies, its pages together have every event
between the edges that it has by then.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

from handlers.profile.upstream_requests import UpstreamRequest
from handlers.repair.pages import Fetched

# The lies of the address, by its own fault.
LIES = ("", "ends early", "forgets the edges", "is empty", "goes round", "is a page for people")


@dataclass(frozen=True, slots=True)
class RestWays:
    """How the address behaves: it has an event `lag_ms` after it happened, for `keeps_ms` (0: always).

    A page has at most `limit` events, without an order if `is_shuffled`. It refuses `refuses` of a hundred requests. If
    it `is_inclusive`, its answers contain the edges. For `lies_ms` it lies as `lie` says, one of LIES.
    """

    seed: int = 0
    lag_ms: int = 0
    limit: int = 5
    keeps_ms: int = 0
    refuses: int = 0
    is_inclusive: bool = False
    is_shuffled: bool = False
    lie: str = ""
    lies_ms: int = 0


class VirtualRest:
    """One address. `emitted_ms` has when each event happened, `body` is an event's JSON."""

    def __init__(
        self, ways: RestWays, now_ms: Callable[[], int], emitted_ms: Sequence[int], body: Callable[[int], str]
    ) -> None:
        self._ways, self._now_ms, self._emitted_ms, self._body = ways, now_ms, emitted_ms, body
        self._draws = random.Random(ways.seed ^ 0x4E57)
        self._until_ms = now_ms() + ways.lies_ms
        self.asked: list[int] = []  # when it was requested
        self.addresses: list[str] = []
        self.down_until_ms = 0
        self.refused_ms = 0  # when it last refused

    def fetch(self, request: UpstreamRequest) -> Fetched:
        """Returns the answer to a request, in the form of `handlers/repair/gap_ports.py`."""
        ways, now_ms = self._ways, self._now_ms()
        self.asked.append(now_ms)
        self.addresses.append(request.address)
        if now_ms < self.down_until_ms:
            return Fetched(problem="no answer: NewConnectionError")
        if self._draws.randrange(100) < ways.refuses:
            self.refused_ms = now_ms
            status, retry_s = self._draws.choice(((503, None), (429, 2.0), (429, 40.0), (500, None)))
            return Fetched(status, problem=f"answered {status}", retry_after_s=retry_s)
        lie = ways.lie if now_ms < self._until_ms else ""
        if lie == "is a page for people":
            return Fetched(200, {}, b"<html>")
        asked = {name: unquote(values[0]) for name, values in parse_qs(urlsplit(request.address).query).items()}
        return Fetched(200, {}, self._answer(asked, lie, now_ms).encode())

    def _answer(self, asked: dict[str, str], lie: str, now_ms: int) -> str:
        ways, edge = self._ways, int(self._ways.is_inclusive)
        after, before = int(asked.get("after", -1)), int(asked.get("before", len(self._emitted_ms)))
        numbers = [
            number
            for number in range(max(0, after + 1 - edge), min(len(self._emitted_ms), before + edge))
            if now_ms - ways.lag_ms >= self._emitted_ms[number]
            and (not ways.keeps_ms or now_ms - self._emitted_ms[number] <= ways.keeps_ms)
        ]
        if lie == "is empty":
            numbers = []
        if lie == "forgets the edges":
            numbers = numbers[1:-1]
        # A lie concerns the whole request and not single pages: no client could notice that one page leaves out an
        # event.
        place = _shuffled if ways.is_shuffled else _in_order
        numbers.sort(key=place)
        if "page" in asked:
            numbers = [number for number in numbers if place(number) >= place(int(asked["page"]))]
        if lie == "ends early":
            # It lacks the newest events, whatever the order of a page.
            numbers = sorted(sorted(numbers)[: ways.limit], key=place)
        page, rest = numbers[: ways.limit], numbers[ways.limit :]
        following = f'"{page[0] if lie == "goes round" else rest[0]}"' if page and rest else "null"
        return f'{{"events":[{",".join(map(self._body, page))}],"next":{following}}}'


def _in_order(number: int) -> tuple[int, int]:
    return number, number


def _shuffled(number: int) -> tuple[int, int]:
    return number * 7919 % 1009, number
