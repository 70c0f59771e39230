"""One lane's invocations in threads of the test: the real driver, upon real sockets and the embedded tables."""

import threading
from dataclasses import dataclass, field
from typing import Any

from handlers.aws.secret_values import SecretValues
from handlers.connection.steps import Invocation, Report
from handlers.profile.behaviour import Profile
from handlers.run.stream_invocation import run_invocation
from handlers.run.threads import SystemClock
from tests.handlers.aws import SECRETS, Aws
from tests.local.support import PATIENCE


class OneSecret:
    """Secrets Manager and the Parameter Store, where everything has the same value."""

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
    def last(self) -> Report:
        """Its last connection, once the invocation has ended."""
        assert self.thread is not None
        self.thread.join(60 * PATIENCE)
        assert not self.thread.is_alive()
        return self.reports[-1]


def start(
    aws: Aws, profile: Profile, stream_id: str, lane: str = "A", lasts_ms: int = 120_000, progress_every_ms: int = 100
) -> Lane:
    """Starts an invocation of the stream, which may last so long; it reads the lease between two heartbeats."""
    clock, started = SystemClock(), Lane()
    invocation = Invocation(
        stream_id=stream_id, lane=lane, execution="", request_id=lane, deadline_ms=clock.now_ms() + lasts_ms,
        margin_ms=200, lease_every_ms=progress_every_ms // 2, progress_every_ms=progress_every_ms, overlap_max_ms=100,
    )  # fmt: skip

    def log(report: Report, _blocked_ms: int) -> None:
        started.reports.append(report)

    def run() -> None:
        run_invocation(profile, aws.store(), SecretValues(lambda _: ONE_SECRET, SECRETS), invocation, clock, log)

    started.thread = threading.Thread(target=run, daemon=True)
    started.thread.start()
    return started
