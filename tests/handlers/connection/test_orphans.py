"""Which streams are orphaned, and the names of the executions that are started for them."""

import hashlib
import json
from itertools import islice

import pytest

from handlers.connection.lease import Lease
from handlers.connection.orphans import (
    GRACE_MS,
    Verdict,
    is_suspect,
    start_input,
    start_names,
    successor_names,
    verdict,
    was_started,
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
def test_what_an_execution_says_of_its_stream(status: str, output: str, expected: Verdict) -> None:
    """Only an end by a stop request, the upstream's end or a rejection says that the stream is over."""
    assert verdict(status, output) is expected


def test_who_is_asked_about() -> None:
    """A stream that should be connected and has not been for the grace period; none that is stopped or connected."""
    expired = Lease(execution=ARN, expires_at_ms=NOW - GRACE_MS)
    assert is_suspect(expired, NOW)
    assert not is_suspect(expired, NOW - 1)
    assert not is_suspect(Lease(execution=ARN, expires_at_ms=1, stop=True), NOW)
    assert not is_suspect(Lease(expires_at_ms=1), NOW)
    assert not is_suspect(Lease(execution=ARN, started_at_ms=NOW - 1), NOW)


def test_names_follow_from_the_predecessor_and_the_stream_alone() -> None:
    """Whoever starts uses the same names; a name is valid for Step Functions, with at most 80 characters."""
    numbered, last, claim, orphans = successor_names("demo", ARN)
    assert list(islice(numbered, 2)) == [f"{DIGEST}-1", f"{DIGEST}-2"]
    assert (list(last), list(claim)) == ([f"{DIGEST}-last"], [f"{DIGEST}-claim"])
    assert list(islice(orphans, 2)) == [f"{OF_DEMO}-orphan-0", f"{OF_DEMO}-orphan-1"]
    assert all(len(name) <= 80 for name in islice(start_names("demo", ARN), 10_000))
    assert next(start_names("demo", ARN)) != next(start_names("demo:other", ARN))
    machine = ARN.rpartition(":")[0]
    assert all(was_started(f"{machine}:{name}") for name in islice(start_names("demo:é", ARN), 20))
    assert not any(was_started(f"{machine}:{next(names)}") for names in successor_names("demo", ARN)[:3])
    assert not was_started(f"{machine}:my-orphan-1")
    assert json.loads(start_input("demo:é", ARN)) == {"pathParameters": {"streamId": "demo:é"}, "renews": ARN}
