"""The verb `apply`, and `--all` and `--match` of `start` and `stop`: start and stop many streams.

The service itself applies the document (`PUT /fleet`). The command sends it, and shows the progress. Invariant: the
service continues however the command ends.
"""

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from handlers.fleet.fleet_document import JSON, LINES, TOML, DocumentError, read
from local.api_client.http_client import REFUSED
from local.streams import api_session
from local.streams.api_session import DONE
from local.terminal import UserError, printable
from streamkeeper.exceptions import Refused

PATH = "/fleet"
CHECK_EVERY_S = 1.0
_BY_SUFFIX = {".toml": TOML, ".json": JSON}
# For so long a request is repeated while the API is away; a step of the service may take some minutes.
SILENT_S = 360.0


def add(subparsers: Any) -> None:
    parser = api_session.add_verb(
        subparsers,
        "apply",
        "Makes the service start and stop streams as a document specifies. A TOML or JSON document has the lists "
        "connected and stopped, of stream ids, ranges (sensors:{001..250}) and patterns (orders:*). Any other file "
        "has one entry per line; a line that begins with ! names what to stop.",
        ["apply streams.toml --dry-run", "apply streams.toml", "apply - < ids.txt"],
        stream=False,
        exits={REFUSED: "the API refused, or some streams were not started or stopped"},
    )
    parser.add_argument("document", metavar="FILE", help="the document; - reads lines from standard input")
    parser.add_argument("--dry-run", action="store_true", help="show what would be started and stopped")
    parser.set_defaults(run=api_session.print_refusals(run))


def run(arguments: argparse.Namespace) -> int:
    """Returns the exit status; raises UserError."""
    if arguments.document == "-":
        return apply_document(arguments, sys.stdin.read(), LINES)
    path = Path(arguments.document)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8"
        raise UserError(f"{arguments.document} cannot be read: {why}.") from None
    return apply_document(arguments, text, _BY_SUFFIX.get(path.suffix.lower(), LINES))


def apply_document(arguments: argparse.Namespace, text: str, kind: str) -> int:
    """Returns REFUSED if a stream is not as wanted in the end; raises UserError for an invalid document."""
    try:
        read(text, kind)
    except DocumentError as error:
        place = f" ({error.place})" if error.place else ""
        raise UserError(f"The document is invalid{place}: {error}.") from None
    is_dry = getattr(arguments, "dry_run", False)
    api = api_session.open_session(arguments, patient_s=SILENT_S)
    query = {"dry_run": "true"} if is_dry else None
    answer, shown = api.request("PUT", PATH, query, text.encode(), kind), ""
    while answer["state"] == "applying":
        if answer["message"] != shown and not (arguments.json or is_dry):
            shown = answer["message"]
            print(printable(shown), flush=True)
        with _note_that_service_continues(is_dry=is_dry):
            time.sleep(CHECK_EVERY_S)
            before, answer = answer, api.request("GET", PATH, query)
        if _document_digest(answer) != _document_digest(before):
            raise UserError("Another document was applied in the meantime: `streamkeeper request GET /fleet` shows it.")
    return _print_outcome(answer, is_json=arguments.json)


@contextlib.contextmanager
def _note_that_service_continues(*, is_dry: bool) -> Iterator[None]:
    """Prints that the service continues, if the command ends within the block."""
    try:
        yield
    except (Refused, UserError, KeyboardInterrupt):
        if not is_dry:
            print("The service goes on; `streamkeeper request GET /fleet` shows how far it is.", file=sys.stderr)
        raise


def _document_digest(answer: dict[str, Any]) -> str:
    """Returns the document's digest, with which the name of its execution begins."""
    return str(answer["execution"]).rpartition(":")[2].partition("-")[0]


def _print_outcome(answer: dict[str, Any], *, is_json: bool) -> int:
    if is_json:
        print(json.dumps(answer))
    else:
        print(printable(answer["message"]))
        for one in answer["not_yet"]:
            would = "started" if one["wanted"] == "connected" else "stopped"
            words = f"would be {would}" if answer["dry_run"] else f"should be {one['wanted']}, is {one['status']}"
            print(printable(f"  {one['stream']}  {words}: {one['why']}"))
        if len(answer["not_yet"]) < answer["left"]:
            print(f"  and {answer['left'] - len(answer['not_yet']):,} more")
    is_refused = answer["state"] == "interrupted" or (answer["left"] and not answer["dry_run"])
    return REFUSED if is_refused else DONE


def apply_to_pattern(arguments: argparse.Namespace, field: str) -> int:
    """Starts or stops all streams that were ever started, or those that match; returns as `apply_document`."""
    if arguments.stream_ids:
        raise UserError("Give only one of STREAM, --all and --match PATTERN.")
    return apply_document(arguments, json.dumps({field: [arguments.match or "*"]}), JSON)
