"""Writes the numbered events of one stream as frames, and finds the number of an event in the table.

    id: 7                                    id: 7
    data: event 7 of chaos                   data: {"seq":7,"of":"chaos","note":""}

If the upstream dates its events, their JSON also has "at". If it is restarted, it counts from 0 again, and bodies name
the count: "event 0 of chaos~1".

Bodies name the stream. JSON is spelled differently at each delivery, and no key may depend on that. Invariant: every
frame of an event has the same length.
"""

import base64
import bisect
import itertools
import random
import re
from collections.abc import Sequence
from typing import Any

from handlers.framing.websocket import TEXT, encoded_frame
from local.simulation.unreliable_clients import REFUSED

KEYS = ("id", "path", "hash")
# The reason why some events cannot be stored, and which: one in so many, and the first of them.
UNSTORABLE = {"refused": (7, 3), "large": (40, 20)}
# Too large for an item (400 KB) even when it is compressed, which leaves three quarters of it.
LARGE = base64.b64encode(random.Random(0).randbytes(420_000)).decode()
# The name of an event that announces a loss.
LOSS = "lost"
_TEXT = re.compile(r"event (?P<number>\d+) of (?P<of>[^ ]*) ?(?P<note>.*)")
_FIRST = re.compile(r'\{"seq":(?P<number>\d+),"of":"(?P<of>[^"]*)",(?:"at":\d{13},)?"note":"(?P<note>[^"]*)"\}')
_LAST = re.compile(r'\{"note":"(?P<note>[^"]*)",(?:"at":\d{13},)?"of":"(?P<of>[^"]*)","seq":(?P<number>\d+)\}')


class Wire:
    """The wire of the stream with this id; `key`, one of KEYS, is the profile's rule for the dedup key.

    `unstorable` is one of UNSTORABLE, "" if every event can be stored. If it is `timed`, the caller sets `emitted_ms`
    to the instants of the events. With `drops` an event is not stored if another one has its key.
    """

    def __init__(
        self,
        stream: str,
        key: str,
        unstorable: str = "",
        *,
        is_socket: bool = False,
        timed: bool = False,
        drops: bool = False,
    ) -> None:
        self.stream = stream
        self.timed = timed
        self.emitted_ms: Sequence[int] = ()
        self.begins = [0]  # the number of the first event of each count
        self.drops = drops
        self._is_socket = is_socket
        self._key = key
        self._every, self._first = UNSTORABLE.get(unstorable, (0, 0))
        self._note = {"refused": REFUSED, "large": LARGE}.get(unstorable, "")
        self._spellings = itertools.cycle((0, 1))
        self._keys: dict[str, int] = {}

    @property
    def fields(self) -> dict[str, Any]:
        """The profile's fields for the key and the time."""
        return {"key": "$.seq" if self._key == "path" else self._key} | ({"time": "$.at"} if self.timed else {})

    def own_number(self, number: int) -> int:
        """Returns the number that the upstream itself gives to the event: it counts from 0 after each restart."""
        return number - self.begins[self._count(number)]

    def events_with_same_key(self, number: int) -> list[int]:
        """Returns the events of earlier counts with the same key as this one."""
        own, count = self.own_number(number), self._count(number)
        return [begin + own for begin in self.begins[:count] if self.own_number(begin + own) == own]

    def _count(self, number: int) -> int:
        return bisect.bisect_right(self.begins, number) - 1

    def frame(self, number: int, *, announces_loss: bool = False) -> bytes:
        """Returns the event's frame, which may announce that the upstream has lost the event before it.

        On a socket the number alone announces that.
        """
        if self._is_socket:
            return encoded_frame(TEXT, self.body(number).encode())
        name = f"event: {LOSS}\n" if announces_loss else ""
        return f"id: {self.own_number(number)}\n{name}data: {self.body(number)}\n\n".encode()

    def id_of(self, number: int) -> str | None:
        """Returns the event's id on the wire; None on a socket, whose messages have none."""
        return None if self._is_socket else str(self.own_number(number))

    def is_unstorable(self, number: int) -> bool:
        """Returns whether no item can hold the event."""
        return bool(self._every) and number % self._every == self._first

    def number_of(self, key: str, data: str) -> int:
        """Returns the number of the event with this body; -1 if there is none, or the key belongs to another event."""
        number = self._number(data)
        if self._key != "hash":
            # After a restart an event gets another key if its own is taken. An event of the first count may come late.
            own, _, other = key.partition("#")
            return number if own == str(self.own_number(number)) and (not other or len(self.begins) > 1) else -1
        return number if self._keys.setdefault(key, number) == number else -1

    def key_number(self, key: str) -> int:
        """Returns the number of the event with this key; -1 if it is not known."""
        if self._key == "hash":
            return self._keys.get(key, -1)
        return int(key) if key.isdigit() else -1

    def body(self, number: int) -> str:
        """Returns the event's text: JSON, which a repair address has too, unless the keys are ids."""
        note = self._note if self.is_unstorable(number) else ""
        own, count = self.own_number(number), self._count(number)
        of = f"{self.stream}~{count}" if count else self.stream
        if self._key == "id":
            return f"event {own} of {of} {note}".rstrip()
        # An event whose frame is cut off before it happened is dated before all others.
        at_ms = self.emitted_ms[number] if number < len(self.emitted_ms) else 10**12
        members = [f'"seq":{own}', f'"of":"{of}"', f'"at":{at_ms}', f'"note":"{note}"']
        if not self.timed:
            del members[2]
        return "{" + ",".join(reversed(members) if next(self._spellings) else members) + "}"

    def _number(self, data: str) -> int:
        match = (_TEXT if self._key == "id" else _FIRST).fullmatch(data)
        if match is None and self._key != "id":
            match = _LAST.fullmatch(data)
        of, _, count = (match["of"] if match is not None else "").partition("~")
        if match is None or of != self.stream:
            return -1
        number = self.begins[int(count or 0)] + int(match["number"])
        return number if match["note"] == (self._note if self.is_unstorable(number) else "") else -1
