"""Writes samples as Prometheus reads them, and as OpenTelemetry does: its protocol in JSON.

Pure. Sources: "Exposition formats" (text format 0.0.4) of Prometheus; "OpenTelemetry Protocol", JSON Protobuf encoding:
64-bit integers are texts, enumerations are numbers. Invariant: whatever a stream's id holds, it stays within its label.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from local.metrics.collector import Sample

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_CUMULATIVE = 2


def prometheus(samples: Iterable[Sample]) -> str:
    """The text; the samples of a metric stand together."""
    lines: list[str] = []
    for metric, group in groupby(samples, key=lambda one: one.metric):
        lines += [f"# HELP {metric.prometheus} {metric.help}", f"# TYPE {metric.prometheus} {metric.kind}"]
        for one in group:
            pairs = zip(metric.labels, one.labels, strict=True)
            labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs)
            lines.append(f"{metric.prometheus}{f'{{{labels}}}' if labels else ''} {one.value}")
    return "".join(f"{line}\n" for line in lines)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def opentelemetry(samples: Iterable[Sample], start_ms: int, now_ms: int) -> dict[str, Any]:
    """The body of an ExportMetricsServiceRequest; counters are sums since `start_ms`."""
    metrics = []
    for metric, group in groupby(samples, key=lambda one: one.metric):
        points = [_point(one, start_ms, now_ms) for one in group]
        data: dict[str, Any] = {"gauge": {"dataPoints": points}}
        if metric.kind == "counter":
            data = {"sum": {"dataPoints": points, "aggregationTemporality": _CUMULATIVE, "isMonotonic": True}}
        metrics.append({"name": metric.opentelemetry, "description": metric.help, "unit": metric.unit, **data})
    service = _attributes(["service.name"], ["streamkeeper"])
    scope = {"scope": {"name": "streamkeeper"}, "metrics": metrics}
    return {"resourceMetrics": [{"resource": {"attributes": service}, "scopeMetrics": [scope]}]}


def _point(one: Sample, start_ms: int, now_ms: int) -> dict[str, Any]:
    value = {"asDouble": one.value} if isinstance(one.value, float) else {"asInt": str(one.value)}
    return {
        "attributes": _attributes(one.metric.labels, one.labels),
        "startTimeUnixNano": str(start_ms * 1_000_000),
        "timeUnixNano": str(now_ms * 1_000_000),
        **value,
    }


def _attributes(names: Sequence[str], values: Sequence[str]) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": value}} for name, value in zip(names, values, strict=True)]
