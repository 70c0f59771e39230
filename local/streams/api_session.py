"""The common parts of the verbs on streams: the choice of the API, requests, refusals, and the form of what is printed.

Invariants: a key comes only from the environment; only a terminal gets colours; every refusal is one line.
"""

import argparse
import functools
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from handlers.api.verdict import plural
from local.api_client.command import ADDRESS_HELP, ENVIRONMENT, choose_api
from local.api_client.http_client import NO_STREAM, Api, exit_status, explain_client_errors
from local.terminal import UserError, WrappedHelp, printable, report_if_slow
from streamkeeper import instants
from streamkeeper.api import pages
from streamkeeper.exceptions import Refused, is_transient
from streamkeeper.following import instants_by_api_clock
from streamkeeper.transport import JSON, Outcome, Reply, Send, Steps, T, Wait, perform, request_steps, with_query

DONE, NOT_RUNNING = 0, 3
EXITS = {
    0: "done",
    1: "the API refused",
    2: "a mistake in the command or no answer",
    NO_STREAM: "there is no such stream",
    130: "Ctrl-C",
}
STREAM_HELP = "a profile's name, optionally with a colon and any text"
# A command that waits this long for an answer says so, and not again within the second time: slow pages come in a row.
SILENT_S, SAID_AGAIN_S = 1.0, 60.0
Run = Callable[[argparse.Namespace], int]
_COLOURS = {"running": 32, "starting": 33, "reconnecting": 33, "stopping": 33, "rejected": 31, "broken": 31}


class ApiSession:
    """A session with an API. Once it has answered, a request is repeated for up to `patient_s` while it is away."""

    def __init__(self, api: Api, patient_s: float = 0) -> None:
        self.api, self._patient_s, self._is_away = api, patient_s, False
        self._reported_s = -SAID_AGAIN_S

    def request(
        self, method: str, path: str, query: Mapping[str, Any] | None = None, body: bytes = b"", kind: str = ""
    ) -> dict[str, Any]:
        """Returns the answer's JSON; raises Refused, or UserError without an answer. `kind` is a body's media type."""
        headers = JSON | ({"content-type": kind} if kind else {})
        return self.perform(request_steps(Send(method, with_query(path, query or {}), headers, body), self._patient_s))

    def perform(self, steps: Steps[T]) -> T:
        """Returns what the steps return; raises as `request`."""
        with explain_client_errors():
            return perform(steps, self._send, self._wait)

    def _send(self, request: Send) -> Outcome:
        began_s = time.monotonic()
        is_said = began_s < self._reported_s + SAID_AGAIN_S
        with report_if_slow(f"{self.api.url} has not answered yet; waiting.", after_s=SILENT_S, is_quiet=is_said):
            outcome = self.api.send(request)
        if not is_said and time.monotonic() >= began_s + SILENT_S:
            self._reported_s = began_s
        was_away, self._is_away = self._is_away, not isinstance(outcome, Reply) or is_transient(outcome.status, "")
        if was_away and not self._is_away:
            print("streamkeeper: the API answers again.", file=sys.stderr)
        return outcome

    def _wait(self, step: Wait) -> None:
        if step.why:
            print(f"streamkeeper: {printable(step.why)}", file=sys.stderr)
        time.sleep(step.seconds)

    def pages(self, path: str, query: Mapping[str, Any], limit: int | None = None) -> Iterator[dict[str, Any]]:
        """Yields the pages of a list, with `limit` entries in all if that is given; raises as `request`."""
        return pages(lambda asked: self.request("GET", path, asked), query, limit)


def local_time(written: str | None) -> str:
    """An instant of an answer in this machine's time zone, with the day unless that is today; "never" for none."""
    if written is None:
        return "never"
    at = datetime.fromisoformat(written).astimezone()
    return at.strftime("%H:%M:%S" if at.date() == datetime.now(at.tzinfo).date() else "%Y-%m-%d %H:%M:%S")


def gap_period(gap: dict[str, Any]) -> str:
    """The begin and the end of a gap in this machine's time zone; the end is `now` if it goes on."""
    begin = datetime.fromisoformat(gap["from_at"]).astimezone()
    end = datetime.fromisoformat(gap["to_at"]).astimezone() if gap["to_at"] else None
    form = "%H:%M:%S" if end is not None and end.date() == begin.date() else "%Y-%m-%d %H:%M:%S"
    return f"{begin:%Y-%m-%d %H:%M:%S}  {format(end, form) if end is not None else 'now':<8}"


def add_verb(
    subparsers: Any,
    name: str,
    words: str,
    examples: list[str],
    *,
    stream: bool = True,
    exits: Mapping[int, str] | None = None,
) -> argparse.ArgumentParser:
    """Adds a verb with --url and --json, its examples, and a stream id if it takes one.

    `exits` are exit statuses of its own; a status that it cannot have means "".
    """
    shown = "\n".join(f"  streamkeeper {example}" for example in examples)
    meanings = sorted({**EXITS, **(exits or {})}.items())
    statuses = ", ".join(f"{status} {meaning}" for status, meaning in meanings if meaning)
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name,
        description=words,
        epilog=f"examples:\n{shown}\n\nExit status: {statuses}. {ENVIRONMENT}",
        formatter_class=WrappedHelp,
    )
    if stream:
        parser.add_argument("stream_id", metavar="STREAM", help=STREAM_HELP)
    parser.add_argument("--url", metavar="ADDRESS", help=ADDRESS_HELP)
    parser.add_argument("--json", action="store_true", help="print the API's answers as JSON, one document per line")
    return parser


def open_session(arguments: argparse.Namespace, patient_s: float = 0) -> ApiSession:
    """The streams of the chosen API."""
    return ApiSession(choose_api(os.environ, arguments.url, sign=False), patient_s)


def print_refusals(run: Run) -> Run:
    """Returns `run` with refusals of the API printed and turned into an exit status."""
    return lambda arguments: call_printing_refusal(arguments, functools.partial(run, arguments))


def call_printing_refusal(arguments: argparse.Namespace, ask: Callable[[], int]) -> int:
    """Returns what `ask` returns, or prints the API's refusal and returns its exit status; raises UserError."""
    try:
        with explain_client_errors():
            return ask()
    except Refused as refusal:
        if arguments.json:
            print(" ".join(refusal.body.split("\n")).strip())
        print(f"streamkeeper: {printable(str(refusal))}", file=sys.stderr)
        return exit_status(refusal)


def read_times(streams: ApiSession, arguments: argparse.Namespace) -> dict[str, str | None]:
    """--from and --to in the API's form; raises UserError if nothing can lie between them."""
    from_at, to_at = streams.perform(instants_by_api_clock(arguments.from_at, arguments.to_at))
    if from_at and to_at and from_at >= to_at:
        raise UserError(f"Nothing lies between --from {from_at} and --to {to_at}: --to must be later than --from.")
    return {"from": from_at, "to": to_at}


def colour_status(status: str) -> str:
    """A status in its colour, on a terminal; no colour with NO_COLOR (no-color.org) or a dumb terminal."""
    code = _COLOURS.get(status)
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty()
    return status if code is None or is_plain else f"\x1b[{code}m{status}\x1b[0m"


def repair_words(gap: dict[str, Any]) -> str:
    """The outcome of a gap's repair, to be printed after the gap's state; "" without one."""
    if (repair := gap.get("repair")) is None:
        return ""
    said = [f"{plural(repair['stored'], 'event')} fetched"] if repair["stored"] else []
    said += [repair["reason"]] if repair["reason"] else []
    said += [f"next try {local_time(repair['next_at'])}"] if repair["next_at"] else []
    return f": {'; '.join(said)}" if said else ""


def read_instant(text: str, word: str | None = None) -> str:
    """The text, if it is an instant, a date, how long ago (90s, 15m, 2h, 7d), or this word."""
    try:
        text == word or instants.instant(text)
    except ValueError as mistake:
        raise argparse.ArgumentTypeError(str(mistake)) from None
    return text
