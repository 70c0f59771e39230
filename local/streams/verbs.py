"""The verbs `start`, `stop`, `status`, `sinks` and `gaps`: one request for each stream, for people or as JSON."""

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from handlers.api.verdict import length_words, plural, with_instant
from handlers.deliver.sink_commands import COMMANDS
from handlers.profile.addresses import shown_id, stream_id_problem
from local.api_client.http_client import NO_STREAM
from local.streams import api_session, fleet_verbs, list_verb
from local.streams.api_session import DONE, NOT_RUNNING, colour_status, gap_period, local_time, repair_words
from local.terminal import UserError, print_line, printable
from streamkeeper.exceptions import Refused
from streamkeeper.following import instants_by_api_clock
from streamkeeper.transport import path_of


def add(subparsers: Any, name: str) -> None:
    words, examples, run = VERBS[name]
    parser = api_session.add_verb(
        subparsers, name, words, examples, stream=name not in ("list", *MANY_STREAM_VERBS), exits=EXITS.get(name)
    )
    if name in MANY_STREAM_VERBS:
        _add_many(parser, name)
    if name in ("gaps", "repair"):
        add_times(parser)
    if name == "repair":
        parser.add_argument("--dry-run", action="store_true", help="fetch, show the outcome, and store nothing")
        parser.add_argument("--no-wait", action="store_true", help="do not wait for the outcome")
    if name == "sinks":
        parser.add_argument("do", nargs="?", choices=COMMANDS, help="what to do with a sink (default: show all sinks)")
        parser.add_argument("sink", nargs="?", metavar="SINK", help="its name, as shown; optional if there is only one")
        when = "replay from: start, an instant, a date, or how long ago (2h, 7d)"
        begin = partial(api_session.read_instant, word="start")
        parser.add_argument("--from", dest="from_at", type=begin, metavar="WHEN", help=when)
        parser.add_argument("--all", action="store_true", help="skip all waiting events, not only the oldest")
    parser.set_defaults(run=api_session.print_refusals(run))


def _add_many(parser: argparse.ArgumentParser, name: str) -> None:
    """Adds the streams, and the options for many."""
    parser.add_argument("stream_ids", metavar="STREAM", nargs="*", help=api_session.STREAM_HELP)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true", help=f"{name} all streams that were ever started")
    which.add_argument("--match", metavar="PATTERN", help=f"{name} the streams whose ids match, such as 'prices:*'")
    parser.add_argument("--dry-run", action="store_true", help="with --all or --match: show what would change")


def add_times(parser: argparse.ArgumentParser) -> None:
    form = "an instant (2026-11-21T06:25:19Z), a date, or how long ago (15m, 2h, 7d)"
    parser.add_argument(
        "--from", dest="from_at", type=api_session.read_instant, metavar="WHEN", help=f"at or after this: {form}"
    )
    parser.add_argument(
        "--to", dest="to_at", type=api_session.read_instant, metavar="WHEN", help="before this, in the same forms"
    )


def _change_streams(
    method: str, field: str, words: Callable[[dict[str, Any]], str], arguments: argparse.Namespace
) -> int:
    """Starts or stops streams; returns the exit status, the highest one if several were refused."""
    if arguments.all or arguments.match:
        return fleet_verbs.apply_to_pattern(arguments, field)
    if not arguments.stream_ids:
        raise UserError("Give a STREAM, --all or --match PATTERN.")
    if arguments.dry_run:
        raise UserError("--dry-run works only with --all or --match.")
    streams, paths = api_session.open_session(arguments), {one: path_of(one) for one in arguments.stream_ids}
    if wrong := next(filter(stream_id_problem, paths), ""):
        verb, shown = "start" if method == "POST" else "stop", shown_id(wrong)
        why = stream_id_problem(wrong)
        raise UserError(f"The stream id {shown} is malformed: {why}. For a pattern write `{verb} --match {shown}`.")

    def change(stream_id: str, path: str) -> int:
        try:
            answer = streams.request(method, path)
        except Refused as refusal:
            if refusal.kind == "unknown-stream":
                streams.request("GET", path)  # this refusal names the profile, and a similar one
            raise
        print(json.dumps(answer) if arguments.json else printable(f"{stream_id} {words(answer)}"), flush=True)
        return DONE

    return max(api_session.call_printing_refusal(arguments, partial(change, one, path)) for one, path in paths.items())


def status(arguments: argparse.Namespace) -> int:
    """Returns the exit status: NOT_RUNNING if the stream does not run."""
    answer = api_session.open_session(arguments).request("GET", path_of(arguments.stream_id))
    if arguments.json:
        print(json.dumps(answer))
    else:
        _print_status(answer)
    return DONE if answer["status"] == "running" else NOT_RUNNING


def _print_status(answer: dict[str, Any]) -> None:
    print(f"{printable(answer['stream'])}  {colour_status(answer['status'])}")
    verdict, at = answer["verdict"], answer["since_at"]
    print_line(f"  {with_instant(verdict, local_time(at)) if at else verdict}", 2)
    for lane, shown in answer["lanes"].items():
        print(f"  lane {lane}    {shown['phase']}")
    for part in answer.get("parts", ()):
        print_line(
            f"  part      {part['stream']}  {colour_status(part['status'])}  {part['reason'] or ''}".rstrip(), 12
        )
    for name, words in _figures(answer):
        print_line(f"  {name:<8}  {words}", 12)


def _figures(answer: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Each figure of a status, by its name."""
    cursor, coverage, counts = answer["cursor"], answer["coverage"], answer["counts"]
    if step := _next_step(answer):
        yield "next", step
    if cursor is not None:
        yield "cursor", f"{cursor['value']}, saved {local_time(cursor['saved_at'])}"
    if coverage is not None:
        shares = ", ".join(
            f"{name} {_format_percent(coverage[f'{name}_percent'])}" for name in ("connected", "complete")
        )
        yield "coverage", f"{shares}, {_missing_in_words(coverage['missing'])}, since {local_time(coverage['since'])}"
    duplicates = plural(counts["duplicates"], "duplicate")
    yield "events", f"{counts['stored']:,} stored, {duplicates}, {counts['dead_lettered']:,} dead-lettered"
    if (silent_ms := answer["pace"]["silent_ms"]) is not None:
        usual = (
            f"; usually one every {length_words(every_ms)}" if (every_ms := answer["pace"]["usual_every_ms"]) else ""
        )
        yield "newest", f"event {length_words(silent_ms)} ago{usual}"
    if (bill := answer.get("bill")) is not None:
        month = f"{bill['forecast_month_usd']:.2f} a month at this rate"
        yield "bill", f"about {bill['so_far_usd']:.2f} USD since {local_time(bill['since_at'])}, {month}"
    if (budget := answer.get("budget")) is not None:
        out = f", {budget['left_out']:,} left out" if budget["left_out"] else ""
        yield "budget", f"{budget['used_percent']} % used today: {plural(budget['events'], 'event')}{out}"
    for row in answer.get("delivery", ()):
        yield "delivery", sink_line(row)


def _next_step(answer: dict[str, Any]) -> str:
    """When a stream that is away is tried again, or what a person must do; "" if nothing has to follow."""
    if answer["status"] in ("stopped", "ended", "rejected", "broken"):
        what, _, step = (answer["reason"] or "").rpartition("; ")
        return step if what else ""
    if answer["status"] == "running" or (error := answer["last_error"]) is None or error["over_at"]:
        return ""
    at, by, final = (error[name] for name in ("tried_again_at", "tried_again_by", "final_at"))
    said = [f"a try after {local_time(at)}"] if at else [f"a try by {local_time(by)}"] if by else []
    said += [f"rejected if still refused at {local_time(final)}"] if final else []
    return "; ".join(said)


def _format_percent(percent: float) -> str:
    """A share with two decimals, rounded down so that 100 means all."""
    return f"{math.floor(percent * 100) / 100:g} %"


def sink_line(row: dict[str, Any]) -> str:
    """How far a sink has come, in one line."""
    words = [f"{row['delivered']} delivered", f"{row['failed']} failed", f"{row['dead_lettered']} dead-lettered"]
    words += [f"{row['skipped']} skipped"] if row["skipped"] else []
    words += [f"{row['waiting']} waiting"] + ([f"oldest {length_words(row['lag_ms'])}"] if row["lag_ms"] else [])
    is_new = not (row["seen_at"] or row["waits"] or row["replaying"])
    state = "; replaying" if row["replaying"] else "; not tried yet" if is_new else ""
    part = f"{row['stream']}  " if "stream" in row else ""
    return f"{part}{row['sink']}  {', '.join(words)}{state}{'; waits: ' + row['waits'] if row['waits'] else ''}"


def sinks(arguments: argparse.Namespace) -> int:
    """Returns the exit status."""
    path, streams = path_of(arguments.stream_id, "/sinks"), api_session.open_session(arguments)
    begin = arguments.from_at
    given = {
        "do": arguments.do,
        "sink": arguments.sink,
        "from": begin if begin == "start" else streams.perform(instants_by_api_clock(begin))[0],
        "all": "true" if arguments.all else "",
    }
    answer = streams.request("POST", path, given) if any(given.values()) else streams.request("GET", path)
    if arguments.json:
        print(json.dumps(answer))
    elif not answer["sinks"]:
        print_line(f"{arguments.stream_id} has no sinks: its profile has no field deliver")
    else:
        for row in answer["sinks"]:
            print_line(sink_line(row))
    return DONE


def _missing_in_words(missing: dict[str, Any]) -> str:
    if not missing["intervals"]:
        return "missing nothing"
    events = "" if missing["events"] is None else f" and {plural(missing['events'], 'event')}"
    return f"missing {plural(missing['intervals'], 'gap')} of {length_words(round(missing['seconds'] * 1000))}{events}"


def gaps(arguments: argparse.Namespace) -> int:
    """Returns the exit status."""
    streams, count = api_session.open_session(arguments), 0
    times = api_session.read_times(streams, arguments)
    for page in streams.pages(path_of(arguments.stream_id, "/gaps"), times):
        count += len(page["gaps"])
        for gap in page["gaps"]:
            part = f"{gap['stream']}  " if "stream" in gap else ""
            line = f"{part}{gap_period(gap)}  {length_words(gap['length_ms']):<12}  {gap['cause']}  {gap['state']}"
            line += repair_words(gap)
            print(json.dumps(gap)) if arguments.json else print_line(line)
    if count == 0 and not arguments.json:
        when = " in that time" if any(times.values()) else ""
        print(printable(f"streamkeeper: {arguments.stream_id} has no gaps{when}."), file=sys.stderr)
    return DONE


def repair(arguments: argparse.Namespace) -> int:
    """Returns the exit status: 3 if a gap is still open, or would be."""
    # Imported late, because it is rarely used.
    from local.streams import repair_verb

    return repair_verb.run(arguments)


MANY_STREAM_VERBS = ("start", "stop")
EXITS = {
    **{name: {1: "the API refused, or some streams did not start or stop"} for name in MANY_STREAM_VERBS},
    "list": {NO_STREAM: ""},
    "status": {NOT_RUNNING: "the stream is not running"},
    "repair": {NOT_RUNNING: "a gap is still open, or with --dry-run would be"},
}
start = partial(
    _change_streams, "POST", "connected", lambda a: "runs already" if a.get("already_running") else "is starting"
)
stop = partial(_change_streams, "DELETE", "stopped", lambda a: f"is {a['status']}. {a['message']}")
VERBS: dict[str, tuple[str, list[str], api_session.Run]] = {
    "start": (
        "Starts streams; one that runs already stays as it is. With --all or --match the service starts them at a safe "
        "rate.",
        ["start demo", "start prices:eur-usd prices:btc-usd --json", "start --all"],
        start,
    ),
    "stop": (
        "Stops streams. Each stores what it has read and closes, and stays stopped until it is started.",
        ["stop demo", "stop --match 'prices:*' --dry-run", "stop --match 'prices:*'"],
        stop,
    ),
    "status": (
        "Shows whether a stream is connected, whether anything was lost, and its lanes, cursor and figures.",
        ["status demo", "status demo --json | jq .coverage", "status demo > /dev/null || alert"],
        status,
    ),
    "list": (
        "Lists all streams that were ever started, the worst first; streams that share a function come last, by group. "
        "With --json they are ordered by id.",
        ["list", "list --json | jq -r .stream"],
        list_verb.run,
    ),
    "sinks": (
        "Shows how far each sink of a stream has come, or operates one: pause and resume its delivery, replay events, "
        "skip the oldest waiting event.",
        [
            "sinks orders",
            "sinks orders pause sqs:orders.fifo",
            "sinks orders replay --from 2d",
            "sinks orders skip --all",
        ],
        sinks,
    ),
    "gaps": (
        "Lists the gaps of a stream with their length, cause and state: delivered later, repaired, partly repaired, "
        "open (not proved complete) or lost.",
        ["gaps demo", "gaps demo --from 7d --json"],
        gaps,
    ),
    "repair": (
        "Fetches the events that were missed in a stream's gaps, from the repair address in its profile, and waits for "
        "the outcome.",
        ["repair trades", "repair trades --from 2h --dry-run", "repair trades --from 2026-11-21T06:00:00Z --json"],
        repair,
    ),
}
