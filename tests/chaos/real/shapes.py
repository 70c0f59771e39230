"""The streams of the soak: each kind of upstream and profile, once with functions of its own and once in a group.

Event n of every stream happens at n times `INTERVAL_MS` after the epoch, and its text follows from n. The journal has,
by stream id, the connections and the sent events. Invariant: the journal is written where the bytes leave the upstream,
so it does not depend on what is tested.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from handlers.aws.lambda_environment import now_ms
from local.upstreams.behaviours import SSE, Behaviour
from tests.planted.table import ROOT, Change, changed
from tests.projects import changed as replaced
from tests.projects import copied

INTERVAL_MS = 250
STALL_AFTER_S = 3
# Long enough to be cut anywhere, and of more than ASCII.
_TEXT = '{"n": <n>, "at_ms": <at_ms>, "pad": "' + "0123456789 é\u2028😀" * 40 + '"}'
_NUMBER = re.compile(rb'\{"n": ([0-9]+), "at_ms"')
SETTINGS = (("function_timeout_s: 8 ", "function_timeout_s: 65 "), ("wait_s: 4 ", "wait_s: 50 "))
GROUPED = ("streams_per_function: 1 ", "streams_per_function: 5 ")


@dataclass(frozen=True)
class Kind:
    """The upstream's framing, its treatment of a second connection, and other fields of the profile."""

    framing: str
    overlap: str
    resumes: bool = False
    more: str = ""

    @property
    def is_log(self) -> bool:
        """Whether events are stored in a log, in order."""
        return "log" in self.more

    def behaviour(self) -> Behaviour:
        """Returns the upstream. If the profile forbids a second connection it serves both; the journal shows them."""
        before, after, media_type = _WIRE[self.framing]
        behaviour = Behaviour(
            event=before + _TEXT + after,
            media_type=media_type,
            heartbeat="\n",
            interval_ms=INTERVAL_MS,
            has_key=False,
            second_connection="evicts" if self.overlap == "evicts" else "serves",
        )
        if not self.resumes:
            return behaviour
        return replace(behaviour, resume=("header", "last-event-id") if self.framing == "sse" else ("query", "since"))

    def profile(self, name: str) -> str:
        """Returns the profile's text."""
        resume = '{ header = "Last-Event-ID" }' if self.framing == "sse" else '{ query = "since" }'
        return (
            f'address = "${{UPSTREAM_DEMO}}/{name}/{{name}}"\nallow_private = true\nframing = "{self.framing}"\n'
            f'connect_timeout_s = 4\nstall_after_s = {STALL_AFTER_S}\noverlap = "{self.overlap}"\n{self.more}'
            f"resume = {resume if self.resumes else _NONE}\n"
        )


_NONE = '"none"'
_LOG = 'store = "log"\nflush_s = 0.5\n'
KINDS: Mapping[str, Kind] = {
    "ids-evict": Kind("sse", "evicts", True),
    "ids-log": Kind("sse", "evicts", True, _LOG),
    "ids-forbid": Kind("sse", "forbids", True),
    "lines-since": Kind("ndjson", "tolerates", True, 'key = "$.n"\ncursor = "$.n"\noverlap_s = 1\n'),
    "live": Kind("sse", "tolerates"),
    "live-evict": Kind("sse", "evicts"),
    "live-log": Kind("ndjson", "tolerates", False, _LOG),
    "live-forbid": Kind("json-seq", "forbids"),
    "live-hot": Kind("ndjson", "tolerates", False, 'standby = "hot"\nkey = "$.n"\n'),
    "live-length": Kind("length", "tolerates"),
}
ALONE = [f"{kind}:alone" for kind in KINDS]
TOGETHER = [f"{kind}:group" for kind in KINDS]
STREAMS = [*ALONE, *TOGETHER]


def text(number: int) -> str:
    """Returns the text of event `number`, in every framing."""
    return _TEXT.replace("<at_ms>", str(number * INTERVAL_MS)).replace("<n>", str(number))


def place_of(stream: str) -> str:
    """Returns the path of a stream at the upstream, without its first slash."""
    return stream.replace(":", "/")


# The text around an event, by framing, and the Content-Type.
_WIRE = {
    "sse": ("id: <n>\ndata: ", "\n\n", SSE),
    "ndjson": ("", "\n", "application/x-ndjson"),
    "json-seq": ("\x1e", "\n", "application/json-seq"),
    "length": (f"{len(text(now_ms() // INTERVAL_MS).encode())}\n", "", "application/json"),
}


@dataclass
class Journal:
    """The upstream's records; instants are epoch milliseconds of this machine's clock, which all processes use."""

    connected: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(lambda: [(0, 0)]))
    """By stream each change of how many are connected."""
    sent: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    """By stream when each event was sent last."""

    def watch(self, place: str, count: int) -> None:
        """Records a change of a stream's connections."""
        self.connected[place.replace("/", ":")].append((now_ms(), count))

    def around(self, app: ASGIApp) -> ASGIApp:
        """Returns the application, and records what it sends."""

        async def noting(scope: Scope, receive: Receive, send: Send) -> None:
            sent = self.sent[scope.get("path", "")[1:].replace("/", ":")]

            async def noted(message: Message) -> None:
                for number in _NUMBER.findall(message.get("body", b"")):
                    sent[int(number)] = now_ms()
                await send(message)

            await app(scope, receive, noted)

        return noting

    def counts(self, stream: str, from_ms: int, to_ms: int) -> list[int]:
        """Returns the numbers of connections that a stream had at any time between the two instants."""
        changes = self.connected[stream]
        first = bisect_right(changes, from_ms, key=lambda change: change[0]) - 1
        return [count for at_ms, count in changes[first:] if at_ms <= to_ms]


def project(folder: Path, changes: Iterable[Change]) -> Path:
    """Copies the project with these profiles, with functions that live for 65 s, and with planted defects."""
    settings = copied(folder) / "env" / "test.yml"
    for change in SETTINGS:
        replaced(settings, change)
    for path, planted in changed(changes).items():
        (folder / path.relative_to(ROOT)).write_text(planted)
    for name, kind in KINDS.items():
        (folder / "env" / "streams" / f"{name}.toml").write_text(kind.profile(name))
    return folder
