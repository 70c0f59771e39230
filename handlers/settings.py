"""Reads a function's settings from its environment; no other module reads that.

A missing or bad variable is a `SettingsError` that names it, raised where the module that needs the settings is
imported: the cold start fails, before any stream is touched. The sentence never holds a value, which may be a secret.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

# Lambda's own limit: "The maximum value is 900 seconds (15 minutes)".
MAX_SECONDS = 900
MAX_DAYS = 3650
MAX_REST_S = 3600
# What a function's start may take, beside the rest before it.
START_MS = 5_000
_UPSTREAM = re.compile(r"UPSTREAM_[A-Z0-9_]+")
# The regions whose endpoints are dynamodb.<region>.amazonaws.com.
_REGION = re.compile(r"(?:af|ap|ca|eu|il|me|mx|sa|us|us-gov)-[a-z]+-[0-9]")
# Variables of the SDK's that change where a request goes or what it trusts.
_NOT_PLAIN = (
    *("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"),
    *("AWS_USE_FIPS_ENDPOINT", "AWS_USE_DUALSTACK_ENDPOINT", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"),
    *("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy"),
)


class SettingsError(ValueError):
    """A variable of a function's environment is missing or bad; the message is one sentence that names it."""


@dataclass(frozen=True, slots=True)
class PlainAws:
    """What a request to DynamoDB, S3, SQS or Lambda needs; `session_token` is "" where there is none.

    `s3_url` is that of PlainS3, `lambda_url` "" where botocore must find it.
    """

    region: str
    dynamodb_url: str
    access_key_id: str
    secret_access_key: str
    session_token: str
    s3_url: str = ""
    sqs_url: str = ""
    lambda_url: str = ""

    def __repr__(self) -> str:
        """Nothing of the secret: a traceback may show this."""
        return f"PlainAws({self.region!r}, {self.dynamodb_url!r}, ...)"


@dataclass(frozen=True, slots=True)
class Settings:
    """The connection manager's settings. `upstreams` are the variables that the address of a profile may begin with.

    `events_bucket` is "" where there is none, `ledger_keep_days` 0 where records are kept for ever. `keep_days` is for
    how many days events are kept whose profile does not say, 0 for ever; `metrics_by` what has metrics of its own.
    """

    events_table: str
    control_table: str
    dead_letter_queue_url: str
    streams_dir: Path
    margin_ms: int
    lease_every_ms: int
    progress_every_ms: int
    wait_ms: int
    events_bucket: str
    ledger_keep_days: int
    keep_days: int
    metrics_by: Literal["stage", "profile", "stream"]
    metrics_namespace: str
    secrets_prefix: str
    upstreams: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ControlSettings:
    """The settings of the function that shows and stops streams; the intervals are the connection manager's.

    After a drop, or after too many requests, the machine has a lane try again within `retried_within_ms`, or
    `throttled_within_ms`.
    """

    events_table: str
    events_bucket: str
    control_table: str
    dead_letter_queue_url: str
    streams_dir: Path
    lease_every_ms: int
    progress_every_ms: int
    retried_within_ms: int
    throttled_within_ms: int


@dataclass(frozen=True, slots=True)
class UpgradeSettings:
    """What the function that upgrades needs: `function` is the name of the one that keeps streams connected."""

    control_table: str
    events_table: str
    function: str
    state_machine_arn: str


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """The settings of the function that watches all streams."""

    control_table: str
    state_machine_arn: str
    alerts_topic_arn: str
    dead_letter_queue_url: str
    unconnected_after_ms: int


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """The settings of the function that sends events on."""

    control_table: str
    dead_letter_queue_url: str
    streams_dir: Path
    secrets_prefix: str
    metrics_by: Literal["stage", "profile", "stream"]
    metrics_namespace: str


def plain_aws(environment: Mapping[str, str]) -> PlainAws | None:
    """What the SDK's variables say of DynamoDB, S3 and SQS, where they say all of it; None where botocore must do it.

    That is so without credentials in the environment (profiles, containers, single sign-on), in a partition with other
    endpoints, and where a variable asks for FIPS, dual stack, a proxy or other certificates.
    """
    if any(environment.get(name) for name in _NOT_PLAIN):
        return None
    region = environment.get("AWS_DEFAULT_REGION") or environment.get("AWS_REGION") or ""
    is_usual = _REGION.fullmatch(region) is not None
    hosts = (("DYNAMODB", "dynamodb"), ("S3", "{bucket}.s3"), ("SQS", "sqs"), ("LAMBDA", "lambda"))
    dynamodb_url, s3_url, sqs_url, lambda_url = (
        environment.get(f"AWS_ENDPOINT_URL_{service}")
        or environment.get("AWS_ENDPOINT_URL")
        or (f"https://{host}.{region}.amazonaws.com" if is_usual else "")
        for service, host in hosts
    )
    key_id, secret = environment.get("AWS_ACCESS_KEY_ID", ""), environment.get("AWS_SECRET_ACCESS_KEY", "")
    urls = (dynamodb_url, s3_url.replace("{bucket}", "bucket"), sqs_url)
    if not (region and key_id and secret and all(map(_is_root, urls))):
        return None
    token = environment.get("AWS_SESSION_TOKEN", "")
    lambda_url = lambda_url if _is_root(lambda_url) else ""
    return PlainAws(region, dynamodb_url, key_id, secret, token, s3_url, sqs_url, lambda_url)


def load(environment: Mapping[str, str]) -> Settings:
    """The settings in `environment`; raises SettingsError. Seconds are whole, from 1 to 900."""
    streams_dir = _streams_dir(environment)
    return Settings(
        events_table=_text(environment, "EVENTS_TABLE"),
        control_table=_text(environment, "CONTROL_TABLE"),
        dead_letter_queue_url=_queue_url(environment),
        streams_dir=streams_dir,
        margin_ms=_milliseconds(environment, "MARGIN_S"),
        lease_every_ms=_milliseconds(environment, "LEASE_EVERY_S"),
        progress_every_ms=_milliseconds(environment, "PROGRESS_EVERY_S"),
        wait_ms=_milliseconds(environment, "WAIT_S"),
        events_bucket=environment.get("EVENTS_BUCKET", "").strip(),
        ledger_keep_days=_whole(environment, "LEDGER_KEEP_DAYS", "days", 0, MAX_DAYS),
        keep_days=_whole(environment, "KEEP_DAYS", "days", 0, MAX_DAYS),
        metrics_by=_metrics_by(environment),
        metrics_namespace=_text(environment, "POWERTOOLS_METRICS_NAMESPACE"),
        secrets_prefix=_text(environment, "SECRETS_PREFIX"),
        upstreams={name: value for name, value in environment.items() if _UPSTREAM.fullmatch(name)},
    )


def load_control(environment: Mapping[str, str]) -> ControlSettings:
    """The settings in `environment`; raises SettingsError. Seconds are whole, from 1 to 900, of rests to an hour."""
    jitter_ms = _milliseconds(environment, "JITTER_S", least_s=0)
    # Once its retries are used up a lane rests for so long, and a little longer by chance.
    rest_ms = _rest_ms(environment, "COOL_DOWN_S") + jitter_ms
    return ControlSettings(
        events_table=_text(environment, "EVENTS_TABLE"),
        events_bucket=environment.get("EVENTS_BUCKET", "").strip(),
        control_table=_text(environment, "CONTROL_TABLE"),
        dead_letter_queue_url=_queue_url(environment),
        streams_dir=_streams_dir(environment),
        lease_every_ms=_milliseconds(environment, "LEASE_EVERY_S"),
        progress_every_ms=_milliseconds(environment, "PROGRESS_EVERY_S"),
        retried_within_ms=max(_rest_ms(environment, "RETRY_MAX_DELAY_S"), rest_ms) + START_MS,
        throttled_within_ms=max(_rest_ms(environment, "THROTTLE_MAX_DELAY_S"), rest_ms) + jitter_ms + START_MS,
    )


def load_delays(environment: Mapping[str, str]) -> tuple[int, int, int, int, int]:
    """How long a function that keeps a group rests, in milliseconds; raises SettingsError.

    In this order: the longest rest after a drop, the first and the longest after too many requests, the rest once the
    retries are used up, and what chance adds to it. Of one stream alone the machine waits so.
    """
    return (
        _rest_ms(environment, "RETRY_MAX_DELAY_S"),
        _rest_ms(environment, "THROTTLE_DELAY_S"),
        _rest_ms(environment, "THROTTLE_MAX_DELAY_S"),
        _rest_ms(environment, "COOL_DOWN_S"),
        _milliseconds(environment, "JITTER_S", least_s=0),
    )


def load_watch(environment: Mapping[str, str]) -> WatchSettings:
    """The settings in `environment`; raises SettingsError. Seconds are whole, from 1 to a day."""
    # Powertools reads this one by itself, but only when the first metrics are written.
    _text(environment, "POWERTOOLS_METRICS_NAMESPACE")
    return WatchSettings(
        control_table=_text(environment, "CONTROL_TABLE"),
        state_machine_arn=_text(environment, "STATE_MACHINE_ARN"),
        alerts_topic_arn=_text(environment, "ALERTS_TOPIC_ARN"),
        dead_letter_queue_url=_queue_url(environment),
        unconnected_after_ms=_milliseconds(environment, "UNCONNECTED_AFTER_S", most_s=86_400),
    )


def load_upgrade(environment: Mapping[str, str]) -> UpgradeSettings:
    """The settings in `environment`; raises SettingsError."""
    return UpgradeSettings(
        control_table=_text(environment, "CONTROL_TABLE"),
        events_table=_text(environment, "EVENTS_TABLE"),
        function=_text(environment, "CONNECTION_MANAGER"),
        state_machine_arn=_text(environment, "STATE_MACHINE_ARN"),
    )


def load_delivery(environment: Mapping[str, str]) -> DeliverySettings:
    """The settings in `environment`; raises SettingsError."""
    return DeliverySettings(
        control_table=_text(environment, "CONTROL_TABLE"),
        dead_letter_queue_url=_queue_url(environment),
        streams_dir=_streams_dir(environment),
        secrets_prefix=_text(environment, "SECRETS_PREFIX"),
        metrics_by=_metrics_by(environment),
        metrics_namespace=_text(environment, "POWERTOOLS_METRICS_NAMESPACE"),
    )


def _is_root(url: str) -> bool:
    """Whether it is a scheme, a host and perhaps a port: no path, for the signature is over "/"."""
    return re.fullmatch(r"https?://[A-Za-z0-9.-]+(?::[0-9]{1,5})?/?", url) is not None


def _streams_dir(environment: Mapping[str, str]) -> Path:
    folder = Path(environment.get("LAMBDA_TASK_ROOT") or ".") / (environment.get("STREAMS_DIR") or "env/streams")
    if not folder.is_dir():
        raise SettingsError("the variable STREAMS_DIR names no folder of stream profiles")
    return folder


def _queue_url(environment: Mapping[str, str]) -> str:
    url = _text(environment, "DEAD_LETTER_QUEUE_URL")
    if not url.startswith(("https://", "http://")):
        raise SettingsError("the variable DEAD_LETTER_QUEUE_URL must be the address of a queue (https://...)")
    return url


def _metrics_by(environment: Mapping[str, str]) -> Literal["stage", "profile", "stream"]:
    match _text(environment, "METRICS_BY"):
        case "stage":
            return "stage"
        case "profile":
            return "profile"
        case "stream":
            return "stream"
    raise SettingsError("the variable METRICS_BY must be stage, profile or stream")


def _text(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "").strip()
    if not value:
        raise SettingsError(f"the variable {name} is not set")
    return value


def _milliseconds(environment: Mapping[str, str], name: str, least_s: int = 1, most_s: int = MAX_SECONDS) -> int:
    return _whole(environment, name, "seconds", least_s, most_s) * 1000


def _rest_ms(environment: Mapping[str, str], name: str) -> int:
    return _milliseconds(environment, name, most_s=MAX_REST_S)


def _whole(environment: Mapping[str, str], name: str, unit: str, least: int, most: int) -> int:
    text = _text(environment, name)
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and least <= int(text) <= most):
        raise SettingsError(f"the variable {name} must be a whole number of {unit} from {least} to {most}")
    return int(text)
