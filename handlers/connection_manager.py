"""The Task of the state machines: keeps one stream connected for one invocation, then returns or raises by name.

The function reads the event and the profile, runs the invocation, and writes one log line and one metrics document for
each connection. The clients and the logger are made once, at the cold start, which a bad environment fails. Invariant:
a log line and an error contain the stream's id and our own words, never an address, a header or the upstream's text.
"""

import contextlib
import functools
import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from aws_lambda_powertools import Logger

from handlers import errors
from handlers.aws.lambda_environment import (
    TimedContext,
    boto3_client,
    bucket,
    dynamodb,
    functions,
    now_ms,
    plain_aws,
    queue,
)
from handlers.aws.secret_values import SecretValues
from handlers.connection.effects import Outcome
from handlers.connection.failures import STUCK_AFTER
from handlers.connection.inputs import Closed
from handlers.connection.steps import Invocation, Report
from handlers.group import is_group
from handlers.profile.behaviour import Profile
from handlers.run.connection_metrics import document, numbers
from handlers.run.deployed_profiles import ANSWER_WITHIN_S, answer_profile_request, read_profile, request_profile
from handlers.run.ports import TOKENS
from handlers.run.profile_source import Profiles
from handlers.run.refresh_tokens import RefreshTokens
from handlers.run.stream_invocation import read_invocation, run_invocation
from handlers.run.threads import SystemClock
from handlers.settings import Settings
from handlers.store.connection_store import Store

TRIES = 4
# The counts of a connection's record that are returned and logged, in this order.
_COUNTS = (
    "fence", "stored", "duplicates", "dead_lettered", "conflicts", "left_out", "missing", "frames", "bytes",
    "unterminated_bytes",
)  # fmt: skip


class LambdaContext(TimedContext, Protocol):
    """The part of Lambda's context object that this function uses."""

    invoked_function_arn: str


def peak_memory_mb() -> int:
    """Returns the most memory that this process has used in any invocation; 0 if the system does not report it."""
    # This works only on Linux. The resource module would also count the process before it became this program.
    with contextlib.suppress(OSError), open("/proc/self/status", "rb") as status:
        for line in status:
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) // 1024
    return 0


logger = Logger()
settings = Settings.load(os.environ)


def start_repair(stream_id: str) -> None:
    """Starts the function that repairs gaps for a stream; if that fails, the watch does so later."""
    # Imported here: few profiles have a repair, and each import lengthens the cold start.
    from handlers.repair.work import start_repair

    if settings.repair_function and not start_repair(lambdas, settings.repair_function, stream_id):
        logger.warning("the repair of a gap could not be started now", extra={"stream_id": stream_id})


def sign_token(cluster: str, region: str) -> tuple[str, int] | Closed:
    """Returns a token for a cluster of EKS, by this function's role."""
    from handlers.aws.eks_tokens import sign_cluster_token

    return sign_cluster_token(plain, cluster, region)


plain = plain_aws(os.environ)
client = dynamodb(plain, tries=TRIES)
# The first dead-letter message makes the queue's client, and the first large body the bucket's: most need neither.
sqs = functools.cache(lambda: queue(plain, tries=TRIES))
# Only a group's function that lacks a profile invokes another function.
lambdas = functools.cache(lambda: functions(plain, read_timeout_s=ANSWER_WITHIN_S))
places: dict[str, Any] = {
    "events_table": settings.events_table,
    "control_table": settings.control_table,
    "dead_letter_queue_url": settings.dead_letter_queue_url,
    "events_bucket": settings.events_bucket,
    "s3": (s3 := functools.cache(lambda: bucket(plain, tries=TRIES))),
    "ledger_keep_days": settings.ledger_keep_days,
    "memory_mb": peak_memory_mb,
    "start_repair": lambda stream_id: start_repair(stream_id),
}
store = Store(client, sqs, **places)
TOKENS.replacements, TOKENS.sign = RefreshTokens(client, settings.control_table), sign_token

secrets = SecretValues(boto3_client, settings.secrets_prefix)
profiles = Profiles(
    settings,
    s3,
    lambda: boto3_client("s3", TRIES),
    logger.warning,
    settings.keep_days,
    (settings.budget_events, settings.budget_bytes),
)


def handler(event: object, lambda_context: LambdaContext) -> dict[str, Any]:
    """Returns how the connection ended: `status` is "ended", "stopped" or "superseded", and counts.

    Any other end raises a class of `handlers.errors`, InvalidRequest if the event or the profile is wrong. An event
    that requests a profile gets the profile (`handlers/run/deployed_profiles.py`); an event of `streamkeeper doctor`
    gets the hosts and secrets that can be reached from here.
    """
    if (answer := answer_profile_request(event, profiles) or _answer_doctor(event)) is not None:
        return answer
    clock = SystemClock()
    began_ms, remaining_ms = clock.now_ms(), lambda_context.get_remaining_time_in_millis()
    logger.append_keys(request_id=lambda_context.aws_request_id, stream_id="", lane="", execution="")
    try:
        invocation = read_invocation(
            event, settings, lambda_context.aws_request_id, now_ms=began_ms, remaining_ms=remaining_ms
        )
        stream_id = invocation.stream_id
        logger.append_keys(stream_id=stream_id, lane=invocation.lane, execution=invocation.execution)
        profile = None if is_group(stream_id) else read_profile(stream_id, profiles)
    except (errors.InvalidRequest, errors.StoreUnavailable) as error:
        logger.error(str(error))
        raise
    logger.info("connecting", extra={"remaining_ms": invocation.deadline_ms - clock.now_ms()})
    try:
        if profile is None:
            return _keep_group(invocation, lambda_context.invoked_function_arn)
        report = run_invocation(profile, store, secrets, invocation, clock, _log)
    except errors.StreamkeeperError as error:
        logger.info(str(error), extra={"outcome": type(error).__name__})
        raise
    return {"status": _status_or_error(report.outcome), **_counts(report)}


def _answer_doctor(event: object) -> dict[str, Any] | None:
    """Returns the answer to `streamkeeper doctor`; None for any other event."""
    if not isinstance(event, Mapping) or "examine" not in event:
        return None
    # Imported here: only a person requests this, and each import lengthens the cold start.
    from handlers.run.examination import answer_examination

    return answer_examination(event, profiles, secrets)


def _keep_group(invocation: Invocation, function_arn: str) -> dict[str, Any]:
    """Returns how the group's function ended; raises a class of `handlers.errors`. The ARN is the function's own."""
    # Imported here: few stages have groups, and each import lengthens the cold start.
    from handlers.group.next_step import Delays
    from handlers.run.group_invocation import GroupLog, run_group
    from handlers.run.group_ports import GroupTables, ReadProfiles, reporter_to
    from handlers.settings import load_delays

    if not invocation.execution:
        raise errors.InvalidRequest("the event must name the execution of a group as a text")

    def log_one(profile: Profile, member: Invocation, report: Report, blocked_ms: int) -> None:
        logger.append_keys(stream_id=member.stream_id)
        _log(profile, member, report, blocked_ms, invocation.stream_id)
        logger.append_keys(stream_id=invocation.stream_id)

    def own_profile(stream_id: str) -> Profile:
        try:
            return read_profile(stream_id, profiles)
        except errors.StoreUnavailable as error:
            # The caller then asks a deployed function for the profile, and that waits until S3 answers again.
            raise errors.InvalidRequest(str(error)) from None

    def ask_deployed(stream_id: str) -> Profile:
        try:
            return request_profile(lambdas(), function_arn, stream_id, profiles)
        except errors.StoreUnavailable as error:
            logger.warning(str(error), extra={"stream_id": stream_id})
            raise

    log, tables = GroupLog(log_one), GroupTables(client, sqs, **places)
    delays = Delays(*(delay_ms / 1000 for delay_ms in load_delays(os.environ)))
    reads = ReadProfiles(own_profile, ask_deployed)
    reports = _with_log(invocation.stream_id, reporter_to(sqs, settings.dead_letter_queue_url))
    try:
        outcome = run_group(invocation, tables, secrets, delays, SystemClock(), reads, log.report, reports)
        return {"status": _status_or_error(outcome)}
    finally:
        for profile, values in log.sums():
            logger.info("newer connections have taken over", extra={"profile": profile, **values})
            _print(document(values, "StreamTakenOver", profile=profile, group=invocation.stream_id, **_metrics()))


def _with_log(group: str, reports: Callable[[str, str, Outcome], None]) -> Callable[[str, str, Outcome], None]:
    """Returns `reports` with a log line for each stream with a wrong profile, which no connection's end logs."""

    def logs(stream_id: str, execution: str, outcome: Outcome) -> None:
        if outcome.error == "InvalidRequest":
            of = {"stream_id": stream_id, "group": group, "outcome": outcome.error}
            logger.error(outcome.message, extra=of)
        reports(stream_id, execution, outcome)

    return logs


def _log(profile: Profile, _who: Invocation, report: Report, blocked_ms: int, group: str = "") -> None:
    """Writes one log line and one metrics document about the connection."""
    outcome, progress = report.outcome, report.progress
    logger.info(
        outcome.message or outcome.status,
        extra={
            "outcome": outcome.error or outcome.status,
            "ended_by": progress.ended_by,
            "connect_ms": report.connect_ms,
            "blocked_ms": blocked_ms,
            **_counts(report),
        },
    )
    if report.same_ends >= STUCK_AFTER:
        # An alarm finds these words in the log.
        logger.warning("stuck at its cursor", extra={"same_ends": report.same_ends, "ended_by": progress.ended_by})
    if progress.conflicts:
        logger.warning("known keys came with other bodies", extra={"conflicts": progress.conflicts})
    values, outcome_name = numbers(report, blocked_ms), outcome.error or outcome.status
    _print(document(values, outcome_name, profile=profile.name, group=group, **_metrics()))


def _metrics() -> dict[str, Any]:
    """Returns the fields that all documents share."""
    by, namespace = settings.metrics_by, settings.metrics_namespace
    return {"service": logger.service, "namespace": namespace, "by": by, "now_ms": now_ms()}


def _print(described: Mapping[str, Any]) -> None:
    # CloudWatch reads the metrics out of the log, whatever level the logger has.
    print(json.dumps(described, separators=(",", ":")), flush=True)


def _status_or_error(outcome: Outcome) -> str:
    """Returns the status that the function returns; raises the error that the outcome names."""
    if not outcome.error:
        return outcome.status
    wait = "" if outcome.retry_after_s is None else f" (Retry-After: {outcome.retry_after_s:g} s)"
    error: type[errors.StreamkeeperError] = getattr(errors, outcome.error)
    raise error(outcome.message + wait)


def _counts(report: Report) -> dict[str, int]:
    return {name: getattr(report.progress, name) for name in _COUNTS}
