"""Decides how an upstream behaves, from the table of its profile; refuses what it does not know, by name.

Reads no file and no environment: the caller passes both. Invariant: a `Profile` that exists is sound, so that nothing
after `parse` needs to check one again.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast

from handlers.stream.addresses import ProfileError, check_address, check_stream_id, expand, fill, with_query
from handlers.stream.events import Rule, StreamEvent, parse_path, to_event
from handlers.stream.framing import FRAMINGS, Decoder, Frame, Framing, decoder

__all__ = ["End", "Profile", "ProfileError", "Resume", "UpstreamRequest", "check_stream_id", "parse"]

Overlap = Literal["evicts", "tolerates", "forbids"]
Standby = Literal["cold", "hot"]
T = TypeVar("T")
MAX_FRAME_BYTES = 16 * 1024 * 1024
# RFC 9110, section 5.6.2 and 5.5: a field's name is a token; its value visible characters, spaces and tabs.
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FIELD_VALUE = re.compile(r"[\t\x20-\x7e]*")


@dataclass(frozen=True, slots=True)
class Resume:
    """Where the cursor is put: the header or the query parameter `name`."""

    place: Literal["header", "query"]
    name: str


@dataclass(frozen=True, slots=True)
class End:
    """Which event means that the stream has ended: one of this name, or one of this data."""

    what: Literal["event", "data"]
    value: str


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """One opening of a stream, ready to be sent; header values are bytes, for a cursor may be any text."""

    method: str
    address: str
    headers: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Profile:
    """How one upstream behaves; `parse` makes it. `env/streams/demo.toml` explains each."""

    name: str
    address: str
    method: str
    headers: tuple[tuple[str, str], ...]
    framing: Framing
    connect_timeout_s: float
    stall_after_s: float
    overlap: Overlap
    overlap_s: float
    standby: Standby
    reconnect_tries: int
    max_frame_bytes: int
    compression: bool
    partitions: int
    keep_days: int
    resume: Resume | None
    key: Rule
    cursor: Rule | None
    end: End | None

    @property
    def connect_timeout_ms(self) -> int:
        """How long the upstream may take to accept the connection."""
        return round(self.connect_timeout_s * 1000)

    @property
    def overlap_ms(self) -> int:
        """How long the older connection reads on after its successor has connected."""
        return round(self.overlap_s * 1000)

    def decoder(self) -> Decoder:
        """A new decoder for one connection."""
        return decoder(self.framing, self.max_frame_bytes)

    def event(self, frame: Frame, received_at_ms: int) -> StreamEvent:
        """The event of `frame` with this profile's dedup key and cursor."""
        return to_event(frame, received_at_ms, key=self.key, cursor=self.cursor)

    def is_end(self, event: StreamEvent) -> bool:
        """Whether `event` means that the stream has ended."""
        if self.end is None:
            return False
        return (event.name if self.end.what == "event" else event.data) == self.end.value

    def address_for(self, stream_id: str) -> str:
        """The address of one stream; raises ProfileError where the id is malformed or is not this profile's."""
        name = check_stream_id(stream_id)
        if name != self.name:
            raise ProfileError(f"the stream id {stream_id!r} belongs to the profile {name!r}, not to {self.name!r}")
        return fill(self.address, stream_id)

    def request(self, stream_id: str, cursor: str | None) -> UpstreamRequest:
        """What to send to open the stream behind `cursor`; None and "" ask for no particular place."""
        address = self.address_for(stream_id)
        # Unless the profile asks for it: compression makes many upstreams hold events back until a block is full.
        encoding = "gzip, deflate" if self.compression else "identity"
        headers = {"accept": FRAMINGS[self.framing].accept, "accept-encoding": encoding, "cache-control": "no-store"}
        headers["user-agent"] = "streamkeeper"
        headers |= {name.lower(): value for name, value in self.headers}
        sent = {name: value.encode() for name, value in headers.items()}
        if self.resume is not None and cursor:
            if self.resume.place == "query":
                address = with_query(address, self.resume.name, cursor)
            elif "\r" not in cursor and "\n" not in cursor and "\0" not in cursor:
                # A line end would begin another header. WHATWG: the value is the last event ID "encoded as UTF-8".
                sent[self.resume.name.lower()] = cursor.encode()
        return UpstreamRequest(self.method, address, sent)


def parse(name: str, table: Mapping[str, Any], variables: Mapping[str, str]) -> Profile:
    """The profile of `table`, a TOML document; raises ProfileError naming the field.

    `variables` are those that an address may begin with (`${UPSTREAM_DEMO}`).
    """
    fields = _Fields(name, table)
    framing = fields.choice("framing", tuple(FRAMINGS), None)
    default: Rule = "id" if framing == "sse" else "hash"
    profile = Profile(
        name=name,
        address=fields.checked("address", lambda text: check_address(expand(text, variables))),
        method=fields.choice("method", ("GET", "POST"), "GET"),
        headers=fields.headers(),
        framing=cast(Framing, framing),
        connect_timeout_s=fields.number("connect_timeout_s", 10, above=0, most=60),
        stall_after_s=fields.number("stall_after_s", 60, above=0, most=900),
        overlap=cast(Overlap, fields.choice("overlap", ("evicts", "tolerates", "forbids"), "tolerates")),
        overlap_s=fields.number("overlap_s", 2, above=-1, most=300),
        standby=cast(Standby, fields.choice("standby", ("cold", "hot"), "cold")),
        reconnect_tries=fields.whole("reconnect_tries", 0, least=0, most=20),
        max_frame_bytes=fields.whole("max_frame_bytes", 1024 * 1024, most=MAX_FRAME_BYTES),
        compression=fields.flag("compression"),
        partitions=fields.whole("partitions", 1, most=64),
        keep_days=fields.whole("keep_days", 0, least=0, most=3650),
        resume=fields.resume(),
        key=fields.rule("key", ("id", "hash"), framing) or default,
        cursor=fields.rule("cursor", ("id",), framing) or ("id" if framing == "sse" else None),
        end=fields.end(),
    )
    fields.refuse_the_rest()
    if profile.standby == "hot" and profile.overlap != "tolerates":
        raise fields.wrong("standby", 'can be "hot" only where overlap is "tolerates"')
    return profile


class _Fields:
    """Takes the fields out of a profile's table one by one, so that what is left over can be refused."""

    def __init__(self, name: str, table: Mapping[str, Any]) -> None:
        self._name = name
        self._table = dict(table)

    def wrong(self, field: str, problem: str) -> ProfileError:
        return ProfileError(f"the profile {self._name!r}: {field} {problem}")

    def refuse_the_rest(self) -> None:
        for field in self._table:
            raise self.wrong(field, "is not a field of a profile; see env/streams/demo.toml for those there are")

    def checked(self, field: str, check: Callable[[str], T]) -> T:
        value = self._table.pop(field, None)
        if not isinstance(value, str):
            raise self.wrong(field, "must be a text" if value is not None else "is missing")
        try:
            return check(value)
        except ProfileError as error:
            raise self.wrong(field, str(error)) from None

    def choice(self, field: str, allowed: tuple[str, ...], default: str | None) -> str:
        value = self._table.pop(field, default)
        if value not in allowed:
            raise self.wrong(field, f"must be one of {', '.join(allowed)}" if value is not None else "is missing")
        return cast(str, value)

    def number(self, field: str, default: float, *, above: float, most: float) -> float:
        value = self._table.pop(field, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not above < value <= most or value < 0:
            least = "at least 0" if above < 0 else f"above {above:g}"
            raise self.wrong(field, f"must be a number of seconds {least} and at most {most:g}")
        return value

    def whole(self, field: str, default: int, *, least: int = 1, most: int) -> int:
        value = self._table.pop(field, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.wrong(field, f"must be a whole number from {least} to {most}")
        return value

    def flag(self, field: str) -> bool:
        value = self._table.pop(field, False)
        if not isinstance(value, bool):
            raise self.wrong(field, "must be true or false")
        return value

    def headers(self) -> tuple[tuple[str, str], ...]:
        table = self._table.pop("headers", {})
        if not isinstance(table, dict):
            raise self.wrong("headers", "must be a table of texts")
        for header, value in table.items():
            if not _TOKEN.fullmatch(header):
                raise self.wrong(f"headers.{header}", "is no name of an HTTP header")
            if not isinstance(value, str) or not _FIELD_VALUE.fullmatch(value):
                raise self.wrong(f"headers.{header}", "must be a text of visible ASCII characters")
            if "${" in value:
                raise self.wrong(f"headers.{header}", "holds a variable; only the start of the address may")
        return tuple(table.items())

    def resume(self) -> Resume | None:
        found = self._one_of("resume", ("header", "query"))
        if found is None:
            return None
        place, name = found
        if place == "header" and not _TOKEN.fullmatch(name):
            raise self.wrong("resume.header", "is no name of an HTTP header")
        return Resume(cast(Literal["header", "query"], place), name)

    def end(self) -> End | None:
        found = self._one_of("end", ("event", "data"))
        return None if found is None else End(cast(Literal["event", "data"], found[0]), found[1])

    def _one_of(self, field: str, kinds: tuple[str, str]) -> tuple[str, str] | None:
        """The single entry of a table such as { header = "Last-Event-ID" }; None where the field is absent."""
        value = self._table.pop(field, None)
        if value is None:
            return None
        entries = list(value.items()) if isinstance(value, dict) else []
        if len(entries) != 1 or entries[0][0] not in kinds or not isinstance(entries[0][1], str) or not entries[0][1]:
            first, second = kinds
            raise self.wrong(field, f'must be {{ {first} = "..." }} or {{ {second} = "..." }}')
        return cast(tuple[str, str], entries[0])

    def rule(self, field: str, words: tuple[str, ...], framing: str) -> Rule | None:
        value = self._table.pop(field, None)
        if value is None:
            return None
        if value == "id" and framing != "sse":
            raise self.wrong(field, 'can be "id" only where framing is "sse"')
        if value in words:
            return cast(Literal["id", "hash"], value)
        path = parse_path(value) if isinstance(value, str) else None
        if path is None:
            spelled = ", ".join(f'"{word}"' for word in words)
            raise self.wrong(field, f'must be {spelled} or a JSON path such as "$.meta.id" or "$.items[0]"')
        return path
