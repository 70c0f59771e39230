"""Writes samples for Prometheus, and sends them to an OpenTelemetry collector if the variables name one.

    OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318     or OTEL_EXPORTER_OTLP_METRICS_ENDPOINT, the whole address
    OTEL_EXPORTER_OTLP_PROTOCOL=http/json                 the only one; may be left out
    OTEL_EXPORTER_OTLP_HEADERS=name=value,name=value      for a collector that requires a key
    OTEL_METRIC_EXPORT_INTERVAL=60000                     milliseconds

The protocol is OTLP over HTTP with JSON, which needs no package: 64-bit integers are texts, enumerations are numbers.
Sources: "Exposition formats" (text format 0.0.4) of Prometheus; "OpenTelemetry Protocol", JSON Protobuf encoding;
"OpenTelemetry Protocol Exporter". Invariants: any stream id stays within its label; a collector that does not answer
costs one line, and nothing waits for it; no header is ever shown.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from urllib.parse import unquote

import urllib3
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from handlers.aws.lambda_environment import now_ms
from handlers.errors import StoreUnavailable
from local.aws_endpoints import is_origin
from local.metrics.collector import Collector, Sample
from local.terminal import UserError, suppress_failures

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_CUMULATIVE = 2
_PATH = "/v1/metrics"
_LEAST_MS, _MOST_MS = 100, 3_600_000
_TIMEOUT = urllib3.Timeout(connect=2, read=5)


def prometheus_text(samples: Iterable[Sample]) -> str:
    """The text, with the samples of each metric together."""
    lines: list[str] = []
    for metric, group in groupby(samples, key=lambda one: one.metric):
        lines += [f"# HELP {metric.prometheus} {metric.help}", f"# TYPE {metric.prometheus} {metric.kind}"]
        for one in group:
            pairs = zip(metric.labels, one.labels, strict=True)
            labels = ",".join(f'{name}="{_escape_label(value)}"' for name, value in pairs)
            lines.append(f"{metric.prometheus}{f'{{{labels}}}' if labels else ''} {one.value}")
    return "".join(f"{line}\n" for line in lines)


def _escape_label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def opentelemetry_body(samples: Iterable[Sample], start_ms: int, now_ms: int) -> dict[str, Any]:
    """The body of an ExportMetricsServiceRequest; counters are sums since `start_ms`."""
    metrics = []
    for metric, group in groupby(samples, key=lambda one: one.metric):
        points = [_data_point(one, start_ms, now_ms) for one in group]
        data: dict[str, Any] = {"gauge": {"dataPoints": points}}
        if metric.kind == "counter":
            data = {"sum": {"dataPoints": points, "aggregationTemporality": _CUMULATIVE, "isMonotonic": True}}
        metrics.append({"name": metric.opentelemetry, "description": metric.help, "unit": metric.unit, **data})
    service = _attributes(["service.name"], ["streamkeeper"])
    scope = {"scope": {"name": "streamkeeper"}, "metrics": metrics}
    return {"resourceMetrics": [{"resource": {"attributes": service}, "scopeMetrics": [scope]}]}


def _data_point(one: Sample, start_ms: int, now_ms: int) -> dict[str, Any]:
    value = {"asDouble": one.value} if isinstance(one.value, float) else {"asInt": str(one.value)}
    return {
        "attributes": _attributes(one.metric.labels, one.labels),
        "startTimeUnixNano": str(start_ms * 1_000_000),
        "timeUnixNano": str(now_ms * 1_000_000),
        **value,
    }


def _attributes(names: Sequence[str], values: Sequence[str]) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": value}} for name, value in zip(names, values, strict=True)]


@dataclass(frozen=True, slots=True)
class ExportTarget:
    """The collector, the headers, and the interval."""

    url: str
    headers: Mapping[str, str]
    every_ms: int


def read_target(environment: Mapping[str, str]) -> ExportTarget | None:
    """The target, or None; raises UserError for an invalid setting or an unsupported protocol."""

    def setting(name: str) -> str:
        prefix = "OTEL_EXPORTER_OTLP_"
        return environment.get(f"{prefix}METRICS_{name}") or environment.get(f"{prefix}{name}") or ""

    whole = environment.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
    url = whole or environment.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    if not url or environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    if not is_origin(url):
        raise UserError("OTEL_EXPORTER_OTLP_ENDPOINT must be the URL of a collector, such as http://127.0.0.1:4318.")
    if (protocol := setting("PROTOCOL")) not in ("", "http/json"):
        raise UserError(f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}; metrics are only sent as http/json.")
    headers = {}
    for pair in filter(None, setting("HEADERS").split(",")):
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            raise UserError("OTEL_EXPORTER_OTLP_HEADERS must be name=value pairs, separated by commas.")
        headers[name.strip()] = unquote(value.strip())
    every = environment.get("OTEL_METRIC_EXPORT_INTERVAL") or "60000"
    if not (every.isascii() and every.isdigit() and _LEAST_MS <= int(every) <= _MOST_MS):
        raise UserError(f"OTEL_METRIC_EXPORT_INTERVAL must be milliseconds, from {_LEAST_MS} to {_MOST_MS}.")
    return ExportTarget(url if whole else url.rstrip("/") + _PATH, headers, int(every))


def send(target: ExportTarget, body: Mapping[str, Any]) -> str:
    """Sends once; returns why it was not accepted, as a phrase, or ""."""
    headers = {**target.headers, "Content-Type": "application/json"}
    try:
        with urllib3.PoolManager(1) as pool:
            answer = pool.request(
                "POST", target.url, body=json.dumps(body).encode(), headers=headers, timeout=_TIMEOUT, retries=False
            )
    except urllib3.exceptions.HTTPError as problem:
        return f"it does not answer ({type(problem).__name__})"
    return "" if answer.status == 200 else f"it answered {answer.status}"


class MetricsService:
    """The route of `/metrics` on the HTTP API's port, and the task that sends the same to OpenTelemetry if configured.

    Invariants: nothing is read unless requested; a failure here ends nothing else.
    """

    def __init__(self, collector: Collector, target: ExportTarget | None, say: Callable[[str], None]) -> None:
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
        return Response(prometheus_text(samples), media_type=TEXT_TYPE)

    async def run(self) -> None:
        """Sends until it is cancelled; returns at once if nothing should be sent."""
        while self._target is not None:
            await asyncio.sleep(self._target.every_ms / 1000)
            with suppress_failures("the export of metrics"):
                problem = await asyncio.to_thread(self._send, self._target)
                if problem != self._problem:
                    self._say(f"metrics: {problem or 'the OpenTelemetry collector accepts them again'}")
                    self._problem = problem

    def _send(self, target: ExportTarget) -> str:
        try:
            at_ms = now_ms()
            problem = send(target, opentelemetry_body(self._collector.collect(at_ms), self._start_ms, at_ms))
        except StoreUnavailable:
            return "the table does not answer, so nothing is sent"
        return f"the OpenTelemetry collector does not accept them: {problem}" if problem else ""
