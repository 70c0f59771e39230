"""The verb `timeline`: describes and draws what any execution did, from its history alone.

Invariant: it reads only histories, not the machine's definition. The one exception: streams that are named, and those
of an execution that is given by its ARN, are shown with their gaps and which of them were repaired (`group.py`).
"""

import argparse
import json
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from handlers.api.verdict import plural
from handlers.connection.gap_record import REPAIRED
from local import terminal
from local.api_client.command import ADDRESS_HELP
from local.history import group
from local.history.group import GroupStreams
from local.history.pictures import check_path, write_picture
from local.history.timeline import cost_usd
from local.streams import api_session
from timeline import picture, svg
from timeline.analysis import EVENTS_LIMIT, RUNNING, SUCCEEDED, Analysis, Execution, analyse
from timeline.coverage import Gap, gap_ms
from timeline.spans import timestamp_ms

COLUMNS = 96
MOST_GAPS = 20
MOST_STREAMS = 20
MEMORY_MB = (128, 10_240)


def add(subparsers: Any) -> None:
    """Adds the verb and its options."""
    parser = subparsers.add_parser(
        "timeline",
        formatter_class=terminal.WrappedHelp,
        description="Shows what an execution did, from its history: lanes, gaps and their causes, how far it is\n"
        "from the limit of events, and the cost. It works with the history of any machine on AWS.",
        epilog="examples:\n"
        "  aws stepfunctions get-execution-history --execution-arn ARN > history.json\n"
        "  streamkeeper timeline history.json --picture timeline.svg\n"
        "  streamkeeper timeline first.json second.json    pages of one execution, or successive executions\n"
        "  streamkeeper timeline --execution ARN           read from AWS, by the SDK's variables\n"
        "  streamkeeper timeline history.json --stream demo    with the stream's gaps from its API",
    )
    parser.add_argument(
        "files", nargs="*", type=Path, metavar="HISTORY.json", help="what get-execution-history printed"
    )
    parser.add_argument("--execution", action="append", metavar="ARN", help="an execution on AWS; repeatable")
    parser.add_argument(
        "--stream", action="append", metavar="ID", help="also draw this stream's gaps, from the API; repeatable"
    )
    parser.add_argument("--url", metavar="ADDRESS", help=f"with --stream: {ADDRESS_HELP}")
    parser.add_argument("--memory-mb", default="128", metavar="MB", help="memory of its functions, for the cost (128)")
    parser.add_argument("--rows", action="store_true", help="list each start and end of a Wait and a Task")
    parser.add_argument("--picture", type=Path, metavar="OUT", help="write the picture to OUT.svg or OUT.html")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--width", type=int, help=f"columns of the picture (those of the terminal; {COLUMNS} in a pipe)"
    )
    parser.set_defaults(run=api_session.print_refusals(run))


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 once the answer is printed; raises UserError if there is no valid history."""
    memory_mb, path = (
        terminal.whole_number("--memory-mb", arguments.memory_mb, *MEMORY_MB),
        check_path(arguments.picture),
    )
    if bool(arguments.files) == bool(arguments.execution):
        raise terminal.UserError("Give either files with histories or --execution ARN.")
    arns = list(dict.fromkeys(arguments.execution or []))
    with terminal.report_if_slow("reading the history …"):
        read = [group.read_execution(arn) for arn in arns] or group.read_files(arguments.files)
        found = analyse(read, now_ms=time.time_ns() // 1_000_000 if arns else None)
    origin_ms = min(timestamp_ms(history[0]) for _, history in read)
    if arguments.stream:
        api = api_session.open_session(arguments)
        streams: GroupStreams | None = group.streams_of_api(api, arguments.stream, origin_ms, found.until_ms)
    else:
        streams = group.streams_of_executions(arns, origin_ms, found.until_ms)
    if streams is not None:
        gaps = [replace(gap, state=REPAIRED) if streams.has_repaired(gap) else gap for gap in found.gaps]
        found = replace(found, gaps=gaps)
    usd = cost_usd(found.transitions, found.running_ms, len(found.functions), memory_mb)
    if path is not None:
        title = terminal.printable(", ".join(execution.name for execution in found.executions))
        lanes = svg.Group("execution", picture_note(found), found.spans, found.tasks, found.gaps)
        rows = [
            svg.Group(terminal.printable(one), _gap_words(gaps), [], [], gaps) for one, gaps in _drawn_streams(streams)
        ]
        write_picture(path, svg.draw([lanes, *rows], found.until_ms, title), title)
    if arguments.json:
        shared = {} if streams is None or streams.problem else group_json(streams)
        print(json.dumps({**as_json(found, usd), **shared}, indent=1))
        return 0
    width = arguments.width or terminal.terminal_columns(sys.stdout, COLUMNS + picture.LABEL) - picture.LABEL
    shown = timeline_text(found, usd, width, with_rows=arguments.rows, streams=streams)
    print(terminal.encodable_picture(sys.stdout.encoding, terminal.printable_lines(shown)))
    return 0


def as_json(found: Analysis, usd: dict[str, float]) -> dict[str, Any]:
    """Returns the object that `--json` prints; times are milliseconds from the first execution's start."""
    return {
        **{name: [asdict(one) for one in getattr(found, name)] for name in ("executions", "rows", "spans", "gaps")},
        "gap_ms": gap_ms(found.gaps),
        "overlap_ms": found.overlap_ms,
        "task_percent": found.task_percent,
        "transitions": found.transitions,
        "until_ms": found.until_ms,
        "usd": usd,
    }


def picture_note(found: Analysis) -> str:
    """Returns the result in two short lines, for a picture."""
    percent = "no Task ran" if found.task_percent is None else f"a Task ran for {found.task_percent:.4g} %"
    return f"{percent}\n{plural(len(found.gaps), 'gap')}"


def group_json(streams: GroupStreams) -> dict[str, Any]:
    """Returns the part of `--json` about the streams that share the functions of a group, or that were named."""
    listed = [
        {"stream": one, "gap_ms": gap_ms(gaps), "gaps": [asdict(gap) for gap in gaps]}
        for one, gaps in streams.gaps.items()
    ]
    return {"group": {"group": streams.group, "streams": listed}} if streams.group else {"streams": listed}


def _drawn_streams(streams: GroupStreams | None) -> list[tuple[str, Sequence[Gap]]]:
    return [] if streams is None else streams.with_gaps[:MOST_STREAMS]


def _gap_words(gaps: Sequence[Gap]) -> str:
    repaired = sum(gap.is_repaired for gap in gaps)
    return f"{plural(len(gaps), 'gap')}, {gap_ms(gaps) / 1000:,.3f} s{f', {repaired} repaired' if repaired else ''}"


def _group_lines(streams: GroupStreams) -> list[str]:
    if streams.problem:
        return [streams.problem]
    gone = streams.with_gaps
    had = f"{len(gone)} of {plural(len(streams.gaps), 'stream')}"
    shared = f"group {streams.group}: {had} in its functions had gaps"
    lines = [shared if streams.group else f"by the ledger, {had} had gaps"]
    lines += [f"  {number} {one}: {_gap_words(gaps)}" for number, (one, gaps) in enumerate(_drawn_streams(streams), 1)]
    return lines + _more_line(len(gone) - MOST_STREAMS)


def _more_line(count: int) -> list[str]:
    return [f"  and {count} more; --json lists them all"] if count > 0 else []


def timeline_text(
    found: Analysis, usd: dict[str, float], width: int, *, with_rows: bool, streams: GroupStreams | None = None
) -> str:
    """Returns the picture and the totals, with the rows before them if requested.

    The gaps of streams are below the lanes.
    """
    shown = []
    if with_rows:
        rows = ((row, f" ({row.error})" if row.error else "") for row in found.rows)
        shown = [f"{row.at_ms / 1000:>12.3f}  {row.lane:<4} {row.what.replace('_', ' ')}{why}" for row, why in rows]
        shown.append("")
    shown += picture.draw(found.spans, found.tasks, found.gaps, found.until_ms, width)
    shown += picture.draw_gaps([gaps for _, gaps in _drawn_streams(streams)], found.until_ms, width)
    columns = max(40, width + picture.LABEL)
    said = [*(_group_lines(streams) if streams is not None else []), *_total_lines(found, usd)]
    totals = (part for line in said for part in textwrap.wrap(line, columns, subsequent_indent="    "))
    with_repairs = any(
        gap.is_repaired for gaps in (found.gaps, *(gaps for _, gaps in _drawn_streams(streams))) for gap in gaps
    )
    return "\n".join([*shown, "", LEGEND + picture.REPAIRED_LEGEND * with_repairs, "", *totals])


LEGEND = picture.LEGEND.replace(f"{picture.STARTING} connecting  ", "").replace("connected", "a Task runs")


def _total_lines(found: Analysis, usd: dict[str, float]) -> list[str]:
    percent = "no Task ran" if found.task_percent is None else f"a Task ran for {found.task_percent:.4f} %"
    lines = [
        f"{percent} of {svg.duration(found.until_ms / 1000)}; overlap {found.overlap_ms / 1000:.3f} s; "
        f"gaps {len(found.gaps)}, {gap_ms(found.gaps) / 1000:.3f} s in all",
        *(
            f"  gap {gap.from_ms / 1000:.3f} to {gap.to_ms / 1000:.3f} s, {(gap.to_ms - gap.from_ms) / 1000:.3f} s: "
            + (f"the Task before it ended by {gap.cause}" if gap.cause != SUCCEEDED else "after a Task that succeeded")
            + ("; repaired" if gap.is_repaired else "")
            for gap in found.gaps[:MOST_GAPS]
        ),
    ]
    lines += _more_line(len(found.gaps) - MOST_GAPS)
    lines += [_execution_line(execution) for execution in found.executions]
    lines.append(
        f"cost: {usd['sum']:.6f} US dollars: {plural(found.transitions, 'transition')} {usd['step_functions']:.6f}, "
        f"functions {usd['lambda']:.6f} ({found.running_ms / 1000:,.1f} s in {plural(len(found.functions), 'call')})"
    )
    return lines


def _execution_line(execution: Execution) -> str:
    said = f"execution {execution.name}: {execution.status}, {execution.events:,} of {EVENTS_LIMIT:,} events"
    if execution.status != RUNNING:
        return said
    if execution.limit_in_ms is None:
        return f"{said}; too young to say when the limit is reached"
    return f"{said}; the limit is {svg.duration(round(execution.limit_in_ms / 1000))} away at this rate"
