"""The verb `redrive`: lists the dead-letter messages of a stage and puts back what can be.

A whole event is stored in its stream, at its place among the others; on request, a rejected stream is started again.
Invariants: a message is deleted only once its content is stored, or its stream is started; every other one is reported
with its reason and is back in the queue when the command ends, even after Ctrl-C. So the command may be repeated, and
two at once do everything once.
"""

import argparse
import contextlib
import json
import sys
from collections import Counter
from typing import Any

from handlers.api.verdict import plural
from handlers.aws.error_translation import translate_errors
from handlers.errors import StoreUnavailable
from handlers.redrive.redriving import LEFT, RUNS, Outcome, Redrive
from handlers.redrive.restore import KNOWN
from local.api_client.command import ADDRESS_HELP
from local.redrive.stage import connect_redrive_stage
from local.streams import api_session
from local.terminal import UserError, printable, report_if_slow
from streamkeeper.transport import path_of


def outcome_line(result: Outcome, *, dry_run: bool) -> str:
    letter, key = result.letter, result.letter.key
    what = f"{letter.stream_id or '?'}{f', event {key}' if key else ''} ({letter.reason or 'no reason'})"
    would = dry_run and result.outcome not in (LEFT, KNOWN, RUNS)
    verb = f"would be {result.outcome}" if would else result.outcome
    return printable(f"{verb}: {what}{f': {result.detail}' if result.detail else ''}")


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "redrive",
        description="Lists the dead-letter messages. Puts whole events back into the table and, with --restart, starts "
        "rejected streams again. Handled messages are deleted from the queue; the others stay.",
        epilog="With a STREAM the HTTP API does the work, otherwise this command, with AWS credentials. "
        "Exit status: 0 nothing is left in the queue, 1 something is, 2 a mistake in the command or no answer, 4 there "
        "is no such stream. "
        "Without --stage, PORT (3000) and STREAMKEEPER_STAGE (local) choose the run on this machine.",
    )
    parser.add_argument("stream_id", nargs="?", metavar="STREAM", help="let the HTTP API do it for this stream")
    parser.add_argument("--url", metavar="ADDRESS", help=f"with a STREAM: {ADDRESS_HELP}")
    parser.add_argument("--stage", metavar="S", help="a deployed stage (default: the run on this machine)")
    parser.add_argument("--stream", action="append", metavar="ID", help="only messages of this stream; repeatable")
    parser.add_argument("--restart", action="store_true", help="start streams that were rejected or not claimed")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 if nothing is left, 1 if something is; raises UserError."""
    if arguments.stream_id is not None:
        return api_session.print_refusals(_redrive_by_api)(arguments)
    if arguments.url is not None:
        raise UserError("--url works only with a STREAM; for the whole queue of a stage give --stage.")
    redrive = Redrive(connect_redrive_stage(arguments.stage), restart=arguments.restart, dry_run=arguments.dry_run)
    wanted = None if arguments.stream is None else frozenset(arguments.stream)
    outcomes = []
    progress = report_if_slow("reading the dead-letter queue …", is_quiet=arguments.json)
    try:
        with progress, translate_errors("ReceiveMessage"), contextlib.closing(redrive.outcomes(wanted)) as each:
            for outcome in each:
                outcomes.append(outcome)
                if not arguments.json:
                    print(outcome_line(outcome, dry_run=arguments.dry_run), flush=True)
    except StoreUnavailable as problem:
        raise UserError(f"The dead-letter queue cannot be read: {problem}.") from None
    counts = Counter(one.outcome for one in outcomes)
    if arguments.json:
        found = [outcome.as_json() for outcome in outcomes]
        print(json.dumps({"dry_run": arguments.dry_run, "counts": counts, "found": found}, indent=1))
    else:
        total = ", ".join(f"{count} {name}" for name, count in counts.items())
        print(f"{plural(len(outcomes), 'message')} found{f': {total}' if total else ''}.", file=sys.stderr)
    return int(LEFT in counts)


def _redrive_by_api(arguments: argparse.Namespace) -> int:
    """As `run`, for one stream, by POST …/redrive."""
    if arguments.restart or arguments.dry_run or arguments.stage or arguments.stream:
        words = "With a STREAM, only --url and --json are possible: the API puts events back, and starts no stream."
        raise UserError(words)
    answer = api_session.open_session(arguments).request("POST", path_of(arguments.stream_id, "/redrive"))
    for one in [] if arguments.json else answer["dead_letters"]:
        about = f"event {one['key']} ({one['reason']})" if one["key"] else one["reason"]
        print(printable(f"{one['outcome']}: {about}{': ' + one['detail'] if one['detail'] else ''}"))
    if arguments.json:
        print(json.dumps(answer))
    elif not answer["dead_letters"] and answer["is_all"]:
        print(printable(f"streamkeeper: the queue has no message of {arguments.stream_id}."), file=sys.stderr)
    elif not answer["is_all"]:
        print("streamkeeper: the queue has more; run the command again.", file=sys.stderr)
    return int(LEFT in answer["counts"] or not answer["is_all"])
