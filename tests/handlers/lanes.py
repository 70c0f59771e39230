"""Invocations of one stream, in the test's thread or in their own, on real sockets and the embedded tables."""

import threading
from dataclasses import dataclass, field
from typing import Any

from handlers.aws.secret_values import SecretValues
from handlers.connection.steps import Invocation, Report
from handlers.profile.behaviour import Profile
from handlers.run.ports import LogReport
from handlers.run.stream_invocation import run_invocation
from handlers.run.threads import SystemClock
from handlers.store.connection_store import Store
from tests.handlers.aws import SECRETS, Aws
from tests.local.support import PATIENCE


class OneSecret:
    """Secrets Manager and the Parameter Store, with the same value for every name."""

    def get_secret_value(self, **_named: str) -> dict[str, str]:
        return {"SecretString": "s3cret"}

    def get_parameter(self, **_named: Any) -> dict[str, Any]:
        return {"Parameter": {"Value": "s3cret"}}


ONE_SECRET = OneSecret()


@dataclass
class Lane:
    """One invocation that runs in a thread; `reports` are its connections so far."""

    reports: list[Report] = field(default_factory=list)
    thread: threading.Thread | None = None

    @property
    def last_report(self) -> Report:
        """Return the report of the last connection, once the invocation has ended."""
        assert self.thread is not None
        self.thread.join(60 * PATIENCE)
        assert not self.thread.is_alive()
        return self.reports[-1]


def refuse_client(service: str) -> Any:
    """Raise: no profile here refers to a secret."""
    raise AssertionError(f"no profile here refers to a secret, and {service} is asked for one")


DEFAULTS: dict[str, Any] = {
    "stream_id": "demo", "lane": "A", "execution": "", "request_id": "r1", "margin_ms": 400, "lease_every_ms": 100,
    "progress_every_ms": 100, "overlap_max_ms": 60_000,
}  # fmt: skip


def run(
    profile: Profile,
    store: Store,
    *,
    lasts_ms: int = 60_000,
    clock: SystemClock | None = None,
    secrets: SecretValues | None = None,
    log: LogReport = lambda *_report: None,
    **fields: Any,
) -> Report:
    """Return the report of an invocation that is killed after `lasts_ms`; fail if it is still running then."""
    clock, secrets = clock or SystemClock(), secrets or SecretValues(refuse_client, SECRETS)
    invocation = Invocation(deadline_ms=clock.now_ms() + lasts_ms, **DEFAULTS | fields)
    report = run_invocation(profile, store, secrets, invocation, clock, log)
    assert clock.now_ms() < invocation.deadline_ms
    return report


def start_lane(
    aws: Aws, profile: Profile, stream_id: str, lane: str = "A", lasts_ms: int = 120_000, progress_every_ms: int = 100
) -> Lane:
    """Start an invocation of the stream that may last `lasts_ms`; it reads the lease between two heartbeats."""
    started = Lane()
    fields: dict[str, Any] = {
        "stream_id": stream_id, "lane": lane, "request_id": lane, "lasts_ms": lasts_ms, "margin_ms": 200,
        "lease_every_ms": progress_every_ms // 2, "progress_every_ms": progress_every_ms, "overlap_max_ms": 100,
        "secrets": SecretValues(lambda _: ONE_SECRET, SECRETS),
        "log": lambda _profile, _who, report, _blocked_ms: started.reports.append(report),
    }  # fmt: skip
    started.thread = threading.Thread(target=run, args=(profile, aws.store()), kwargs=fields, daemon=True)
    started.thread.start()
    return started
