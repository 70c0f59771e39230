"""Shows what the service does: a moving picture of the lanes in a terminal, plain lines elsewhere.

It checks once a second while executions run, and never otherwise. Invariants: it changes nothing; a failure of the
display never ends the service.
"""

import asyncio
import contextlib
import errno
import json
import sys
import textwrap
from datetime import datetime

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from handlers.api.connection_records import Records
from handlers.api.verdict import away_words
from handlers.aws.lambda_environment import now_ms
from handlers.connection.failures import STUCK_AFTER
from handlers.errors import StoreUnavailable
from handlers.group import is_group
from handlers.store.stream_records import StreamRecords
from local.aws_endpoints import Endpoints
from local.service.function_failures import Failure, Failures, message_of_cause
from local.service.group_view import GroupView
from local.service.stream_recovery import stream_id_of
from local.service.stream_view import AlertReporter, StreamView, alerts
from local.terminal import accept_any_text, encodable_picture, printable, printable_lines, suppress_failures
from states_language.server import Closing, Executions, KnownExecution
from timeline import picture, spans
from timeline.coverage import Connection, gaps


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raises the error of the write; rich would end the process in the middle of a request."""
        raise BrokenPipeError(errno.EPIPE, "the reader of standard output has gone")


class Screen:
    """Prints lines with the time of day, and, on a terminal, a picture below them.

    Invariants: a line that standard output refuses, as a file on a full disk does, is lost and breaks nothing; no text
    controls the terminal.
    """

    def __init__(self) -> None:
        accept_any_text(sys.stdout)
        self._console = _Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._live: Live | None = None
        self.interactive = self._console.is_terminal and not self._console.is_dumb_terminal

    def print_lines(self, text: str) -> None:
        """Prints lines; control characters are escaped."""
        with suppress_failures("the display"):
            self._console.print(self._encodable(printable_lines(text)))
            sys.stdout.flush()

    def say(self, text: str) -> None:
        """Prints one line of news."""
        self.print_lines(f"{datetime.now().astimezone():%H:%M:%S} {printable(text)}")

    def show_picture(self, picture_of: RenderableType | None) -> None:
        """Replaces the picture below the lines; None removes it."""
        if not self.interactive:
            return
        if picture_of is None:
            self.close()
            return
        with suppress_failures("the display"):
            if self._live is None:
                self._live = Live(console=self._console, auto_refresh=False, transient=True)
                self._live.start()
            self._live.update(picture_of, refresh=True)

    def wrap_lines(self, text: str, style: str = "") -> list[Text]:
        """Returns a line for a picture, wrapped for the terminal, which would cut a longer line of a picture.

        Control characters are escaped.
        """
        shown = self._encodable(printable(text))
        fits = len(shown) <= self.width
        return [Text(part, style=style) for part in ([shown] if fits else textwrap.wrap(shown, self.width))]

    def _encodable(self, text: str) -> str:
        return encodable_picture(self._console.encoding, text)

    @property
    def width(self) -> int:
        """Columns of the terminal."""
        return self._console.width

    def close(self) -> None:
        """Removes the picture and shows the cursor."""
        with suppress_failures("the display"):
            if self._live is not None:
                live, self._live = self._live, None
                live.stop()


CHECK_EVERY_S = 1.0
WINDOW_MS = 120_000


class LiveView:
    """Reads the control table while executions run, and prints what has changed."""

    def __init__(
        self, executions: Executions, endpoints: Endpoints, control_table: str, screen: Screen, unconnected_after_s: int
    ) -> None:
        self._executions = executions
        self._endpoints = endpoints
        self._control_table = control_table
        self._screen = screen
        self._unconnected_after_ms = unconnected_after_s * 1000
        self._alert_reporter = AlertReporter()
        self._views: dict[str, StreamView] = {}
        self._groups: dict[str, GroupView] = {}
        self._spans: dict[str, tuple[int, list[spans.Span]]] = {}
        self._failures: dict[str, Failures] = {}
        self._changed = asyncio.Event()

    def report_execution(self, known: KnownExecution) -> None:
        """Prints that an execution started or ended."""
        stream_id = stream_id_of(known)
        stream = f" for the stream {stream_id!r}" if stream_id else ""
        if known.closing is None:
            self._screen.say(f"execution {known.opening.name} started{stream}")
        else:
            alert, ending = ending_of(known.closing)
            self._screen.say(f"{'ALERT: ' if alert else ''}execution {known.opening.name} ended{stream}: {ending}")
        self._changed.set()

    async def run(self) -> None:
        """Shows the lanes until it is cancelled."""
        while True:
            await self._changed.wait()
            # Cleared before the checks, so that an execution that starts during the last check is shown too.
            self._changed.clear()
            while self._executions.running():
                await self._check_safely()
                await asyncio.sleep(CHECK_EVERY_S)
            await self._check_safely()
            self._screen.show_picture(None)

    async def _check_safely(self) -> None:
        with suppress_failures("the live view"):
            await self._check()

    async def _check(self) -> None:
        running = self._executions.running()
        streams = {stream: known for known in running if (stream := stream_id_of(known))}
        failed = self._new_failures(running)
        for stream_id, known in streams.items():
            self._views.setdefault(stream_id, StreamView(stream_id, known.opening.started_ms))
        found: dict[str, Records] = {}
        groups: list[str] = []
        # The tables may be restarting; the next check is a second away.
        with contextlib.suppress(StoreUnavailable):
            found, groups = await asyncio.to_thread(self._read, list(self._views))
        for stream_id, view in self._views.items():
            records = found.get(stream_id)
            losses = [] if records is None else reversed(records.losses)
            for news in view.update(records, now_ms(), failed.get(stream_id, []), losses):
                self._screen.say(news)
            if records is not None:
                for line in self._alert_reporter.new_lines(stream_id, self._alerts(view, records)):
                    self._screen.say(line)
        for news in groups:
            self._screen.say(news)
        for stream_id in [one for one in self._views if one not in streams]:
            del self._views[stream_id]
            self._groups.pop(stream_id, None)
        shown = {known.opening.arn for known in streams.values()}
        self._spans = {arn: kept for arn, kept in self._spans.items() if arn in shown}
        if self._screen.interactive and streams:
            self._screen.show_picture(Group(*(self._draw(known) for known in streams.values())))

    def _read(self, stream_ids: list[str]) -> tuple[dict[str, Records], list[str]]:
        """The records of each single stream, and the news of each group."""
        table = StreamRecords(self._endpoints.table_client(), self._control_table)
        alone = [one for one in stream_ids if not is_group(one)]
        read, at_ms = table.read_for_status(alone), now_ms()
        found = {one: records for one in alone if (records := read(one)) is not None}
        news = []
        for group in set(stream_ids).difference(alone):
            seen = self._groups.setdefault(group, GroupView(group))
            news += seen.check(table, at_ms, at_ms - WINDOW_MS, self._unconnected_after_ms)
        return found, news

    def _alerts(self, view: StreamView, records: Records) -> dict[str, str]:
        """The alerts of a stream by kind, like the deployed alarms."""
        rest, away_ms = records.rest, view.unconnected_ms(now_ms())
        shown = {} if away_ms else alerts(records, now_ms())
        if away_ms >= self._unconnected_after_ms:
            shown["away"] = f": {away_words(away_ms)}"
        if rest.same_ends >= STUCK_AFTER:
            words = f" is stuck at its cursor: {rest.same_ends} connections in a row ended in the same way"
            shown[f"stuck at {rest.same_end}"] = words
        return shown

    def _new_failures(self, running: list[KnownExecution]) -> dict[str, list[Failure]]:
        """The failures of functions since the last check, by stream."""
        kept, self._failures = self._failures, {}
        failures: dict[str, list[Failure]] = {}
        for known in running:
            reader = self._failures[known.opening.arn] = kept.get(known.opening.arn) or Failures()
            failures.setdefault(stream_id_of(known), []).extend(reader.read_new(self._executions.history(known)))
        return failures

    def _draw(self, known: KnownExecution) -> RenderableType:
        """The last two minutes of a stream, or of a function and the gaps of its streams, the newest at the right."""
        stream_id, at_ms = stream_id_of(known), now_ms()
        since_ms, width = at_ms - WINDOW_MS, max(40, min(self._screen.width - 10, 110))
        lanes, group, view = self._recent_lanes(known, since_ms), self._groups.get(stream_id), self._views[stream_id]
        # The picture's own scale starts at the left; here the right edge is now.
        if group is not None:
            tasks = [
                Connection(span.lane, span.from_ms, WINDOW_MS if span.to_ms is None else span.to_ms, span.error)
                for span in lanes
                if span.kind == "task"
            ]
            *drawn, _, _ = picture.draw(lanes, tasks, [], WINDOW_MS, width)
            head, lines = f"group {group.group}: {group.summary}", [*drawn, *group.draw(since_ms, at_ms, width)]
        else:
            connections = [
                Connection(one.lane, max(0, one.from_ms - since_ms), one.to_ms - since_ms, one.ended_by)
                for one in view.connections(at_ms)
                if one.to_ms > since_ms
            ]
            *drawn, _ = picture.draw(lanes, connections, gaps(connections, WINDOW_MS), WINDOW_MS, width)
            head, lines = f"{stream_id}: {view.holder_in_words()}", [view.summary(at_ms), *drawn]
        scale = f"{'':>6} {'-' + str(WINDOW_MS // 1000) + ' s':<{width - 3}}now"
        shown = [
            *self._screen.wrap_lines(head, style="bold"),
            *(part for line in [*lines, scale] for part in self._screen.wrap_lines(line)),
            *self._screen.wrap_lines(picture.LEGEND, style="dim"),
        ]
        return Group(Text(""), *shown)

    def _recent_lanes(self, known: KnownExecution, since_ms: int) -> list[spans.Span]:
        """What the lanes did since then, counted from then."""
        shift_ms = known.opening.started_ms - since_ms
        return [
            spans.Span(span.lane, span.kind, max(0, span.from_ms + shift_ms), end_ms)
            for span in self._lanes(known)
            for end_ms in [None if span.to_ms is None else span.to_ms + shift_ms]
            if end_ms is None or end_ms > 0
        ]

    def _lanes(self, known: KnownExecution) -> list[spans.Span]:
        history = self._executions.history(known)
        size, lanes = self._spans.get(known.opening.arn, (0, []))
        if size != len(history):
            lanes = spans.spans(spans.rows(history))
            self._spans[known.opening.arn] = (len(history), lanes)
        return lanes


# The normal ends of an execution of the deployed machine, by the status in its output.
_ENDS = {
    "stopped": "stopped on request",
    "ended": "the upstream ended the stream",
    "superseded": "renewed: another execution keeps the stream connected",
    "handed_on": "renewed: another execution keeps trying to claim the stream",
    "AlreadyRunning": "another execution already keeps the stream connected",
}


def ending_of(closing: Closing) -> tuple[bool, str]:
    """Returns whether the deployed alarms would report this end, and a phrase for the end.

    They report failed executions, and rejected ones, which leave a dead-letter message in the queue.
    """
    try:
        output = json.loads(closing.output or "")
    except ValueError:
        output = None
    status = output.get("status") if isinstance(output, dict) else None
    if isinstance(output, dict) and status == "rejected":
        return True, f"rejected by {output.get('error')}: {message_of_cause(str(output.get('cause')))}"
    if closing.status == "SUCCEEDED" and isinstance(status, str) and status in _ENDS:
        return False, _ENDS[status]
    if closing.status in ("FAILED", "TIMED_OUT"):
        return True, f"{closing.status} {closing.error or ''}: {message_of_cause(closing.cause or '')}"
    return False, f"{closing.status} {closing.error or closing.output or ''}".rstrip()
