"""What the verbs on streams have in common: which API is asked, what an answer means, and how it is shown.

Invariants: a key comes from the environment alone; colours are for a terminal alone; every refusal is one line; who is
patient asks again where an answer may come later, and not sooner than Retry-After says.
"""

import argparse
import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from local.api_client.command import here
from local.api_client.http_client import Answer, Api
from local.printable import printable, saying
from local.user_error import UserError
from streamkeeper import instants
from streamkeeper.exceptions import is_transient, wanted_rest_s
from streamkeeper.retrying import Patience
from streamkeeper.stored import pages

DONE, REFUSED, NOT_RUNNING, NO_STREAM = 0, 1, 3, 4
EXIT = (
    "Exit status: 0 done, 1 the API refused, 2 a mistake in the command or no answer, 3 the stream is not running "
    "(status alone), 4 there is no such stream, 130 Ctrl-C. Environment: STREAMKEEPER_URL is the API's address, "
    "STREAMKEEPER_API_KEY the key; without them, the run on this machine (PORT, 3000)."
)
_NOT_FOUND = 404
# After how long somebody who waits for an answer reads that there is none.
SILENT_S = 3.0
Run = Callable[[argparse.Namespace], int]
_COLOURS = {"running": 32, "starting": 33, "reconnecting": 33, "stopping": 33, "rejected": 31, "broken": 31}


class Refused(Exception):
    """The API refused; `status` is what the command exits with."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.status = NO_STREAM if answer.status == _NOT_FOUND else REFUSED
        super().__init__(answer.sentence)

    @property
    def may_pass(self) -> bool:
        """Whether the same request may be answered later."""
        return is_transient(self.answer.status, self.answer.kind)

    @property
    def retry_after_s(self) -> float:
        """How long the API wants to be left alone, 0 where it does not say."""
        return wanted_rest_s(self.answer.headers.get("retry-after", ""))


@dataclass(frozen=True)
class Streams:
    """The streams of an API, which is asked again for `patient_s` where it does not answer now, if it ever did."""

    api: Api
    patient_s: float = 0
    _answered: list[bool] = field(default_factory=list)

    def ask(
        self, method: str, path: str, query: Mapping[str, Any] | None = None, body: bytes = b"", kind: str = ""
    ) -> dict[str, Any]:
        """The answer's JSON; raises Refused, and UserError where there is none. `kind` is the media type of a body."""
        patience, has_waited = Patience(self.patient_s), False
        while True:
            try:
                answer = self._asked(method, path, query, body, kind)
            except (Refused, UserError) as problem:
                may_pass, retry_after_s = bool(self._answered), 0.0
                if isinstance(problem, Refused):
                    may_pass, retry_after_s = problem.may_pass, problem.retry_after_s
                wait_s = patience.wait_s(retry_after_s) if may_pass else None
                if wait_s is None:
                    raise
                print(f"streamkeeper: {printable(str(problem))} Trying again in {wait_s:g} s.", file=sys.stderr)
                time.sleep(wait_s)
                has_waited = True
                continue
            if has_waited:
                print("streamkeeper: the API answers again.", file=sys.stderr)
            self._answered.append(True)
            return answer

    def _asked(
        self, method: str, path: str, query: Mapping[str, Any] | None, body_sent: bytes, kind: str
    ) -> dict[str, Any]:
        chosen = {name: value for name, value in (query or {}).items() if value not in (None, "")}
        headers = {"Content-Type": kind} if kind else None
        asked_for = path + (f"?{urlencode(chosen)}" if chosen else "")
        with saying(f"{self.api.url} has not answered yet; waiting.", SILENT_S, to_pipes=True):
            answer = self.api.request(method, asked_for, headers, body_sent)
        if not answer.is_success:
            raise Refused(answer)
        try:
            body = json.loads(answer.body)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise UserError(f"{self.api.url} answers with what is not JSON: it is no API of Streamkeeper's.")
        return body

    def pages(self, path: str, query: Mapping[str, Any], left: int | None = None) -> Iterator[dict[str, Any]]:
        """The pages of a list, of so many entries in all where `left` says how many; raises as `ask`."""
        return pages(lambda asked: self.ask("GET", path, asked), query, left)


def local_time(written: str | None) -> str:
    """An instant of an answer in this machine's time zone, to the second; "never" for none."""
    if written is None:
        return "never"
    return datetime.fromisoformat(written).astimezone().isoformat(sep=" ", timespec="seconds")


def path_of(stream_id: str, below: str = "") -> str:
    """The path of a stream, whose id is one segment of it; raises UserError where that is empty."""
    if not stream_id:
        raise UserError("The stream id is empty: write a profile's name, perhaps with a colon and any text.")
    return f"/connections/{quote(stream_id, safe='')}{below}"


def verb(
    subparsers: Any, name: str, words: str, examples: list[str], *, stream: bool = True
) -> argparse.ArgumentParser:  # fmt: skip
    """Adds a verb with what all have: --url, --json, its examples, and a stream id where it takes one."""
    shown = "\n".join(f"  streamkeeper {example}" for example in examples)
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name,
        description=words,
        epilog=f"examples:\n{shown}\n\n{EXIT}",
        formatter_class=Wrapped,
    )
    if stream:
        parser.add_argument("stream_id", metavar="STREAM", help="a profile's name, perhaps with a colon and any text")
    parser.add_argument("--url", metavar="ADDRESS", help="the API's address (STREAMKEEPER_URL, else the run here)")
    parser.add_argument("--json", action="store_true", help="print the API's answer as JSON, a document a line")
    return parser


class Wrapped(argparse.HelpFormatter):
    """Wraps a description, and the last paragraph of an epilog; examples stand as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(
            part if part.startswith("examples:") else super(Wrapped, self)._fill_text(part, width, indent)
            for part in text.split("\n\n")
        )


def streams(arguments: argparse.Namespace, patient_s: float = 0) -> Streams:
    """The streams of the API that is meant."""
    return Streams(here(os.environ, arguments.url, sign=False), patient_s)


def refusals(run: Run) -> Run:
    """Has a refusal of the API printed, and the command exit with its status."""

    @functools.wraps(run)
    def told(arguments: argparse.Namespace) -> int:
        try:
            return run(arguments)
        except Refused as refusal:
            if arguments.json:
                print(" ".join(refusal.answer.body.split("\n")).strip())
            print(f"streamkeeper: {printable(str(refusal))}", file=sys.stderr)
            return refusal.status

    return told


def check_order(arguments: argparse.Namespace) -> None:
    """Raises UserError where nothing can lie between --from and --to."""
    if arguments.from_at and arguments.to_at and arguments.from_at >= arguments.to_at:
        raise UserError(
            f"Nothing lies between --from {arguments.from_at} and --to {arguments.to_at}: --to must be the later one."
        )


def in_colour(word: str, of: str = "") -> str:
    """The word in the colour of a status, on a terminal; NO_COLOR (no-color.org) and a dumb terminal get none."""
    code = _COLOURS.get(of or word)
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty()
    return word if code is None or is_plain else f"\x1b[{code}m{word}\x1b[0m"


def start_or_instant(text: str) -> str:
    """As `instant`; "start" stands for the beginning."""
    return text if text == "start" else instant(text)


def instant(text: str) -> str:
    """An instant as the API takes it, of an instant, a date, or how long ago (90s, 15m, 2h, 7d)."""
    try:
        return instants.instant(text)
    except ValueError as mistake:
        raise argparse.ArgumentTypeError(str(mistake)) from None
