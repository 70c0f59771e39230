"""Serves `/metrics` on the HTTP API's port, and sends the same to OpenTelemetry if that is configured.

Invariants: nothing is read unless requested; a failure here ends nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from handlers.aws.lambda_environment import now_ms
from handlers.errors import StoreUnavailable
from local.metrics import export
from local.metrics.collector import Collector
from local.observers import suppress_failures


class MetricsService:
    """The route, and the sending task."""

    def __init__(self, collector: Collector, target: export.ExportTarget | None, say: Callable[[str], None]) -> None:
        self._collector = collector
        self._target = target
        self._say = say
        self._start_ms = now_ms()
        self._problem = ""
        self.route = Route("/metrics", self._answer)

    async def _answer(self, _: Request) -> Response:
        try:
            samples = await asyncio.to_thread(self._collector.collect, now_ms())
        except StoreUnavailable:
            return PlainTextResponse("The table does not answer; try again.\n", 503, {"Retry-After": "5"})
        return Response(export.prometheus_text(samples), media_type=export.TEXT_TYPE)

    async def run(self) -> None:
        """Sends until it is cancelled; returns at once if nothing should be sent."""
        while self._target is not None:
            await asyncio.sleep(self._target.every_ms / 1000)
            with suppress_failures("the export of metrics"):
                problem = await asyncio.to_thread(self._send, self._target)
                if problem != self._problem:
                    self._say(f"metrics: {problem or 'the OpenTelemetry collector accepts them again'}")
                    self._problem = problem

    def _send(self, target: export.ExportTarget) -> str:
        try:
            at_ms = now_ms()
            problem = export.send(
                target, export.opentelemetry_body(self._collector.collect(at_ms), self._start_ms, at_ms)
            )
        except StoreUnavailable:
            return "the table does not answer, so nothing is sent"
        return f"the OpenTelemetry collector does not accept them: {problem}" if problem else ""
