"""Sends the metrics to an OpenTelemetry collector, where the standard variables name one.

    OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318     or OTEL_EXPORTER_OTLP_METRICS_ENDPOINT, the whole address
    OTEL_EXPORTER_OTLP_PROTOCOL=http/json                 the one that there is; it may be left out
    OTEL_EXPORTER_OTLP_HEADERS=name=value,name=value      for a collector that asks for a key
    OTEL_METRIC_EXPORT_INTERVAL=60000                     milliseconds

The protocol is OTLP over HTTP with JSON, so no package is needed. Source: "OpenTelemetry Protocol Exporter".
Invariant: a collector that does not answer costs one line, and nothing waits for it; no header is ever shown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import urllib3

from local.user_error import UserError

_PATH = "/v1/metrics"
_LEAST_MS, _MOST_MS = 100, 3_600_000
_TIMEOUT = urllib3.Timeout(connect=2, read=5)


@dataclass(frozen=True, slots=True)
class Target:
    """Where to send, with which headers, and how often."""

    url: str
    headers: Mapping[str, str]
    every_ms: int


def read(environment: Mapping[str, str]) -> Target | None:
    """The target; None where none is named. UserError for a setting that is wrong, or a protocol that is not here."""

    def setting(name: str) -> str:
        prefix = "OTEL_EXPORTER_OTLP_"
        return environment.get(f"{prefix}METRICS_{name}") or environment.get(f"{prefix}{name}") or ""

    whole = environment.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
    url = whole or environment.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    if not url or environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise UserError("OTEL_EXPORTER_OTLP_ENDPOINT must be the URL of a collector, such as http://127.0.0.1:4318.")
    if (protocol := setting("PROTOCOL")) not in ("", "http/json"):
        raise UserError(f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}; metrics are sent as http/json alone.")
    headers = {}
    for pair in filter(None, setting("HEADERS").split(",")):
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            raise UserError("OTEL_EXPORTER_OTLP_HEADERS must be name=value pairs, with commas between them.")
        headers[name.strip()] = unquote(value.strip())
    every = environment.get("OTEL_METRIC_EXPORT_INTERVAL") or "60000"
    if not (every.isascii() and every.isdigit() and _LEAST_MS <= int(every) <= _MOST_MS):
        raise UserError(f"OTEL_METRIC_EXPORT_INTERVAL must be milliseconds, from {_LEAST_MS} to {_MOST_MS}.")
    return Target(url if whole else url.rstrip("/") + _PATH, headers, int(every))


def send(target: Target, body: Mapping[str, Any]) -> str:
    """Sends once; returns why it was not taken, as a phrase, "" where it was."""
    headers = {**target.headers, "Content-Type": "application/json"}
    try:
        with urllib3.PoolManager(1) as pool:
            answer = pool.request(
                "POST", target.url, body=json.dumps(body).encode(), headers=headers, timeout=_TIMEOUT, retries=False
            )
    except urllib3.exceptions.HTTPError as problem:
        return f"it does not answer ({type(problem).__name__})"
    return "" if answer.status == 200 else f"it answered {answer.status}"
