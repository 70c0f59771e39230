"""Which streams are orphaned, and the names of the executions that are started for them."""

import hashlib
import json
from itertools import islice

import pytest

from handlers.connection.lease import Lease
from handlers.connection.orphans import (
    GRACE_MS,
    Verdict,
    is_replacement,
    is_suspect,
    judge_execution,
    start_input,
    start_names,
    successor_names,
)

NOW = 1_000_000
ARN = "arn:aws:states:us-east-1:111111111111:execution:machine:one"
DIGEST = hashlib.sha1(ARN.encode()).hexdigest()
OF_DEMO = hashlib.sha1(json.dumps(["demo", ARN]).encode()).hexdigest()


@pytest.mark.parametrize(
    ("status", "output", "expected"),
    [
        ("RUNNING", "", Verdict.RUNS),
        ("PENDING_REDRIVE", "", Verdict.RUNS),
        ("SUCCEEDED", '{"status": "ended"}', Verdict.DONE),
        ("SUCCEEDED", '{"status": "stopped"}', Verdict.DONE),
        ("SUCCEEDED", '{"status": "rejected", "error": "StreamRejected", "cause": ""}', Verdict.DONE),
        ("SUCCEEDED", '{"status": "superseded"}', Verdict.OVER),
        ("SUCCEEDED", '{"status": "handed_on"}', Verdict.OVER),
        ("SUCCEEDED", '{"status": "AlreadyRunning", "execution": "other"}', Verdict.ASIDE),
        ("SUCCEEDED", "[]", Verdict.OVER),
        ("SUCCEEDED", '{"status": 1}', Verdict.OVER),
        ("SUCCEEDED", "", Verdict.OVER),
        ("FAILED", "", Verdict.OVER),
        ("ABORTED", '{"status": "stopped"}', Verdict.OVER),
        ("TIMED_OUT", "", Verdict.OVER),
        ("", "", Verdict.OVER),
    ],
)
def test_the_end_of_an_execution_decides_whether_its_stream_is_over(
    status: str, output: str, expected: Verdict
) -> None:
    """A stream is over only if its execution ended by a stop request, the upstream's end or a rejection."""
    assert judge_execution(status, output) is expected


def test_only_a_stream_that_is_unconnected_for_the_grace_period_is_suspect() -> None:
    """A stream is suspect after the grace period, unless it is stopped, has no execution or has just started."""
    expired = Lease(execution=ARN, expires_at_ms=NOW - GRACE_MS)
    assert is_suspect(expired, NOW)
    assert not is_suspect(expired, NOW - 1)
    assert not is_suspect(Lease(execution=ARN, expires_at_ms=1, stop=True), NOW)
    assert not is_suspect(Lease(expires_at_ms=1), NOW)
    assert not is_suspect(Lease(execution=ARN, started_at_ms=NOW - 1), NOW)


def test_names_follow_from_the_predecessor_and_the_stream_alone() -> None:
    """Every starter uses the same names; each is valid for Step Functions, with at most 80 characters."""
    numbered, last, claim, orphans = successor_names("demo", ARN)
    assert list(islice(numbered, 2)) == [f"{DIGEST}-1", f"{DIGEST}-2"]
    assert (list(last), list(claim)) == ([f"{DIGEST}-last"], [f"{DIGEST}-claim"])
    assert list(islice(orphans, 2)) == [f"{OF_DEMO}-orphan-0", f"{OF_DEMO}-orphan-1"]
    assert all(len(name) <= 80 for name in islice(start_names("demo", ARN), 10_000))
    assert next(start_names("demo", ARN)) != next(start_names("demo:other", ARN))
    machine = ARN.rpartition(":")[0]
    assert all(is_replacement(f"{machine}:{name}") for name in islice(start_names("demo:é", ARN), 20))
    assert not any(is_replacement(f"{machine}:{next(names)}") for names in successor_names("demo", ARN)[:3])
    assert not is_replacement(f"{machine}:my-orphan-1")
    assert json.loads(start_input("demo:é", ARN)) == {"pathParameters": {"streamId": "demo:é"}, "renews": ARN}
