"""The verb `follow`: prints the events of a stream as they are stored, until Ctrl-C.

It asks for page after page, as docs/store.md says. Invariants: an event is printed once, however late it was written;
an API that does not answer is asked again, one that will never answer is not; at its end the command prints
how to go on behind what was printed.
"""

import argparse
import contextlib
import json
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NoReturn

from local.api_client.following import Following
from local.printable import printable
from local.streams import asking
from local.streams.asking import Refused, Streams, path_of
from local.user_error import UserError

EVERY_S, LONGEST_S = 1.0, 30.0
_TRANSIENT = (429, 500, 502, 503, 504)
# What a later version wrote stays so, though its status is one of these.
_LASTING = "unknown-layout"


def add(subparsers: Any) -> None:
    """Adds the verb."""
    words = "Prints events as they are stored, until Ctrl-C, which says how to go on behind the last one."
    examples = ["follow demo", "follow demo --json | jq -r .data", "follow demo --all", "follow demo --after POSITION"]
    parser = asking.verb(subparsers, "follow", words, examples)
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument("--after", default="", metavar="POSITION", help="begin behind the event with this position")
    begin.add_argument("--all", action="store_true", help="begin with the first event; without, with what comes now")
    begin.add_argument("--from", dest="from_at", type=asking.instant, metavar="WHEN", help="begin at this instant")
    parser.set_defaults(run=run)


@asking.refusals
def run(arguments: argparse.Namespace) -> int:
    """Ends where the API refuses; raises KeyboardInterrupt at Ctrl-C."""
    follower = _Follower(asking.streams(arguments), arguments)
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    from_at = arguments.from_at or (None if arguments.all or arguments.after else now)
    try:
        follower.run(from_at)
    except KeyboardInterrupt:
        sys.stdout.flush()
        more = f" --after {shlex.quote(follower.printed)}" if follower.printed else ""
        stands = f"streamkeeper follow {shlex.quote(arguments.stream_id)}{more}"
        print(f"\nstreamkeeper: go on with `{printable(stands)}`", file=sys.stderr)
        raise


class _Follower:
    """Prints what is new; `printed` is the position of the last event that was printed whole."""

    def __init__(self, streams: Streams, arguments: argparse.Namespace) -> None:
        self.printed: str = arguments.after
        self._following = Following(arguments.after)
        self._streams = streams
        self._arguments = arguments

    def run(self, from_at: str | None) -> NoReturn:
        """Raises Refused where the API refuses for good, UserError where it never answered."""
        rest_s, has_answered = EVERY_S, False
        path = path_of(self._arguments.stream_id, "/events")
        while True:
            after = self._following.after(time.monotonic_ns() // 1_000_000)
            try:
                page = self._streams.ask("GET", path, {"after": after, "limit": 1000, "from": from_at})
            except Refused as refusal:
                if refusal.answer.status not in _TRANSIENT or refusal.answer.kind == _LASTING:
                    raise
                rest_s = _lost(str(refusal), rest_s)
                continue
            except UserError as problem:
                if not has_answered:
                    raise
                rest_s = _lost(str(problem), rest_s)
                continue
            if rest_s > EVERY_S:
                print("streamkeeper: the API answers again.", file=sys.stderr)
            rest_s, has_answered = EVERY_S, True
            self._print(page)
            if not self._following.is_behind(page):
                time.sleep(EVERY_S)

    def _print(self, page: dict[str, Any]) -> None:
        for event in self._following.take(page):
            words = json.dumps(event, ensure_ascii=False) if self._arguments.json else line(event)
            with _uninterrupted():
                print(words)
                # One that was written late stands before others, and nobody goes back.
                self.printed = max(self.printed, event["position"])
        sys.stdout.flush()


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Holds Ctrl-C back until the block is over: a line is printed and known, or neither; a second one ends it."""
    held: list[int] = []

    def hold(number: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, former)
        held.append(number)

    # Bound before: the signal may come while the handler is set.
    former = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
    if held:
        raise KeyboardInterrupt


def _lost(sentence: str, rest_s: float) -> float:
    """Waits, and returns how long to wait the next time."""
    print(f"streamkeeper: {printable(sentence)} Trying again in {rest_s:g} s.", file=sys.stderr)
    time.sleep(rest_s)
    return min(rest_s * 2, LONGEST_S)


def line(event: dict[str, Any]) -> str:
    """An event for a person: when it came, its key and its body."""
    data = event.get("data")
    body = data if data is not None else f"[{event.get('left_out') or event.get('dead_letter') or 'bytes, as base64'}]"
    return printable(f"{event['received_at']}  {event['key']}  {body}".replace("\n", " "))
