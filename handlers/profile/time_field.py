"""Parses `time` and `time_unit`: the path of the instant at which an event happened, and its unit.

    time = "$.data.at"        time_unit = "iso"

The instant is by the upstream's clock, and is compared only with other instants of the upstream. Pure.
"""

from datetime import UTC, datetime
from typing import Any, Literal, get_args

from handlers.framing.events import JsonPath, parse_json, value_at_path
from handlers.framing.frames import Body
from handlers.profile.checked_fields import A_PATH, Fields, Form, choice
from handlers.values import dataclass

TimeUnit = Literal["ms", "s", "us", "ns", "iso"]
# How many of each unit are in a millisecond, as a fraction.
_UNITS: dict[str, tuple[int, int]] = {"s": (1, 1000), "ms": (1, 1), "us": (1000, 1), "ns": (1_000_000, 1)}
_PLACE = Form(
    A_PATH.schema, f"{A_PATH.must_be}, within the stored event, which of a batch is an element", A_PATH.convert
)


@dataclass(frozen=True, slots=True)
class OwnTime:
    """The path of an event's own time; None if it has none."""

    path: JsonPath | None = None
    unit: TimeUnit = "ms"

    def event_ms(self, data: Body | None) -> int | None:
        """Returns when the event with this body happened, in epoch milliseconds; None if it does not say."""
        return None if self.path is None or data is None else self.parsed_event_ms(parse_json(data))

    def parsed_event_ms(self, body: Any) -> int | None:
        """As `event_ms`, for a body that is parsed already."""
        return None if self.path is None else self.instant_ms(value_at_path(body, self.path)[1])

    @property
    def step_ms(self) -> int:
        """By how much two instants of `instant_text` differ at least."""
        return 1000 if self.unit == "s" else 1

    def instant_text(self, at_ms: int) -> str:
        if self.unit == "iso":
            return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        times, parts = _UNITS[self.unit]
        return str(at_ms * times // parts)

    def instant_ms(self, value: Any) -> int | None:
        """Returns the epoch milliseconds of a value in the unit; None if it is not an instant."""
        try:
            if self.unit == "iso":
                instant = datetime.fromisoformat(value)
                return round((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp() * 1000)
            times, parts = _UNITS[self.unit]
            return int(float(value) * parts / times) if parts > 1 or "." in str(value) else int(value) // times
        except (TypeError, ValueError, OverflowError):
            return None


def own_time(fields: Fields, default: OwnTime | None = None) -> OwnTime:
    """Returns what `time` and `time_unit` of the table say; `default` for an absent one."""
    known = default or OwnTime()
    path, unit = fields.read("time", _PLACE), fields.read("time_unit", choice(get_args(TimeUnit)), known.unit)
    return OwnTime(path or known.path, unit)
