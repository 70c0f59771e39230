"""The environment is complete, or the cold start fails with the variable's name."""

from pathlib import Path

import pytest

from handlers.settings import ControlSettings, DeliverySettings, Settings, SettingsError, WatchSettings


def environment(root: Path, **changes: str) -> dict[str, str]:
    (root / "env" / "streams").mkdir(parents=True, exist_ok=True)
    whole = {
        "LAMBDA_TASK_ROOT": str(root),
        "EVENTS_TABLE": "events",
        "CONTROL_TABLE": "control",
        "DEAD_LETTER_QUEUE_URL": "https://sqs.example.org/1/dead",
        "STATE_MACHINE_ARN": "arn:machine",
        "MARGIN_S": "5",
        "WAIT_S": "10",
        "KEEP_DAYS": "7",
        "LEDGER_KEEP_DAYS": "30",
        "METRICS_BY": "profile",
        "SECRETS_PREFIX": "/streamkeeper/test/",
        "LEASE_EVERY_S": "1",
        "PROGRESS_EVERY_S": "2",
        "POWERTOOLS_METRICS_NAMESPACE": "Streamkeeper",
        "ALERTS_TOPIC_ARN": "arn:alerts",
        "UNCONNECTED_AFTER_S": "86400",
        "DELIVERY_TABLE": "delivery",
        "CONNECTION_DELIVERY": "deliver",
    }
    return whole | changes


def test_a_complete_environment_gives_the_settings(tmp_path: Path) -> None:
    """Seconds become milliseconds, the streams' folder has a default, and only UPSTREAM_ variables are kept."""
    more = {
        "UPSTREAM_DEMO": "http://127.0.0.1:1",
        "AWS_SECRET_ACCESS_KEY": "x",
        "BUDGET_BYTES_PER_DAY": "1000000000000",
    }
    settings = Settings.load(environment(tmp_path, **more))
    assert settings == Settings(
        events_table="events",
        control_table="control",
        dead_letter_queue_url="https://sqs.example.org/1/dead",
        streams_dir=tmp_path / "env" / "streams",
        margin_ms=5000,
        lease_every_ms=1000,
        progress_every_ms=2000,
        wait_ms=10_000,
        events_bucket="",
        ledger_keep_days=30,
        keep_days=7,
        budget_events=0,
        budget_bytes=10**12,
        metrics_by="profile",
        metrics_namespace="Streamkeeper",
        secrets_prefix="/streamkeeper/test/",
        upstreams={"UPSTREAM_DEMO": "http://127.0.0.1:1"},
        repair_function="",
        profiles_bucket="",
        profiles_folder="",
    )


def test_addresses_are_packaged_beside_the_profiles(tmp_path: Path) -> None:
    """Packaged addresses are read, an environment variable goes first, and an unreadable file fails the cold start."""
    variables, packaged = environment(tmp_path, UPSTREAM_B="http://b"), tmp_path / "env" / "upstreams.json"
    packaged.write_text('{"UPSTREAM_A": "http://a", "UPSTREAM_B": "http://old"}')
    assert Settings.load(variables).upstreams == {"UPSTREAM_A": "http://a", "UPSTREAM_B": "http://b"}
    packaged.write_text("{")
    with pytest.raises(SettingsError, match=r"^the file upstreams.json beside .* is not JSON$"):
        Settings.load(variables)


def test_the_streams_folder_may_be_elsewhere(tmp_path: Path) -> None:
    """STREAMS_DIR is a folder relative to the task's root, or an absolute one."""
    (tmp_path / "other").mkdir()
    assert Settings.load(environment(tmp_path, STREAMS_DIR="other")).streams_dir == tmp_path / "other"
    assert Settings.load(environment(tmp_path, STREAMS_DIR=str(tmp_path / "other"))).streams_dir == tmp_path / "other"


METRICS = ["METRICS_BY", "POWERTOOLS_METRICS_NAMESPACE", "SECRETS_PREFIX", "DEAD_LETTER_QUEUE_URL", "CONTROL_TABLE"]
CONTROL_NEEDED = [
    "STATE_MACHINE_ARN",
    *("EVENTS_TABLE", "CONTROL_TABLE", "DEAD_LETTER_QUEUE_URL", "LEASE_EVERY_S", "PROGRESS_EVERY_S"),
    *("RETRY_MAX_DELAY_S", "THROTTLE_MAX_DELAY_S", "COOL_DOWN_S", "JITTER_S", "FLEET_MACHINE_ARN"),
]
FLEET = "arn:aws:states:us-east-1:000000000000:stateMachine:fleet"
RESTS = {
    "FLEET_MACHINE_ARN": FLEET,
    "RETRY_MAX_DELAY_S": "20",
    "THROTTLE_MAX_DELAY_S": "300",
    "COOL_DOWN_S": "15",
    "JITTER_S": "10",
}
Kind = type[Settings | ControlSettings | DeliverySettings | WatchSettings]
NEEDED: dict[Kind, list[str]] = {
    Settings: [
        *("EVENTS_TABLE", "MARGIN_S", "LEASE_EVERY_S", "PROGRESS_EVERY_S", "WAIT_S", "KEEP_DAYS"),
        *("LEDGER_KEEP_DAYS", *METRICS),
    ],
    ControlSettings: CONTROL_NEEDED,
    DeliverySettings: METRICS,
    WatchSettings: [
        *("STATE_MACHINE_ARN", "ALERTS_TOPIC_ARN", "UNCONNECTED_AFTER_S", "CONTROL_TABLE"),
        *("DEAD_LETTER_QUEUE_URL", "POWERTOOLS_METRICS_NAMESPACE"),
    ],
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in NEEDED.items() for name in names])
def test_a_missing_variable_is_named(tmp_path: Path, kind: Kind, name: str) -> None:
    """If a variable is empty that a function needs, the error names it."""
    for value in ("", "  "):
        with pytest.raises(SettingsError, match=f"^the variable {name} is not set$"):
            kind.load(environment(tmp_path, **(RESTS | {name: value})))


BAD: list[tuple[Kind, str, tuple[str, ...], str]] = [
    (WatchSettings, "UNCONNECTED_AFTER_S", ("0", "86401"), "a whole number of seconds from 1 to 86400"),
    (
        Settings,
        "MARGIN_S",
        ("0", "-1", "+5", "1.5", "5s", "901", "٣", "1e2", "0x5"),
        "a whole number of seconds from 1 to 900",
    ),
    (Settings, "LEDGER_KEEP_DAYS", ("-1", "3651", "1.5", "12345"), "a whole number of days from 0 to 3650"),
    (Settings, "KEEP_DAYS", ("-1", "3651", "1.5", "12345"), "a whole number of days from 0 to 3650"),
    (
        Settings,
        "BUDGET_EVENTS_PER_DAY",
        ("-1", "1000000000001", "1e6"),
        "a whole number of events from 0 to 1000000000000",
    ),
    (Settings, "METRICS_BY", ("sink", "Stage", "1"), "stage, profile or stream"),
    (Settings, "DEAD_LETTER_QUEUE_URL", ("dead-letters",), "the address of a queue (https://...)"),
]


@pytest.mark.parametrize(("kind", "name", "values", "words"), BAD)
def test_a_bad_value_is_named(tmp_path: Path, kind: Kind, name: str, values: tuple[str, ...], words: str) -> None:
    """The error of a bad value names the variable and its valid values, but not the value."""
    for value in values:
        with pytest.raises(SettingsError) as refused:
            kind.load(environment(tmp_path, **{name: value}))
        assert str(refused.value) == f"the variable {name} must be {words}"


def test_optional_values_are_accepted(tmp_path: Path) -> None:
    """0 days means never, a bucket is optional, and metrics are by stage or stream; a missing folder is refused."""
    for by in ("stage", "stream"):
        loaded = Settings.load(environment(tmp_path, METRICS_BY=by, LEDGER_KEEP_DAYS="0", EVENTS_BUCKET="mine"))
        assert (loaded.metrics_by, loaded.ledger_keep_days, loaded.events_bucket) == (by, 0, "mine")
    with pytest.raises(SettingsError, match=r"^the variable STREAMS_DIR names no folder of stream profiles$"):
        Settings.load(environment(tmp_path, STREAMS_DIR="nowhere"))


def test_the_control_function_needs_less(tmp_path: Path) -> None:
    """The control function needs tables, folder, queue and the connection manager's intervals; a bucket is optional."""
    whole = environment(tmp_path, UPSTREAM_DEMO="http://127.0.0.1:1", **RESTS)
    needed = {name: whole[name] for name in ("LAMBDA_TASK_ROOT", *CONTROL_NEEDED)}
    assert ControlSettings.load(needed | {"EVENTS_BUCKET": "mine"}).events_bucket == "mine"
    assert ControlSettings.load(needed) == ControlSettings(
        events_table="events",
        events_bucket="",
        control_table="control",
        dead_letter_queue_url=whole["DEAD_LETTER_QUEUE_URL"],
        state_machine_arn="arn:machine",
        streams_dir=tmp_path / "env" / "streams",
        lease_every_ms=1000,
        progress_every_ms=2000,
        # A cool-down of 15 s with 10 s of jitter exceeds the longest back-off; 5 s are for a function's start.
        retried_within_ms=30_000,
        throttled_within_ms=315_000,
        fleet_machine_arn=FLEET,
        repair_function="",
        sinks_table="",
        sinks_function="",
        upstreams={},
        profiles_bucket="",
        profiles_folder="",
    )


def test_the_delivery_reads_the_settings_of_its_metrics(tmp_path: Path) -> None:
    """The delivering function's settings include the kind and the namespace of its metrics."""
    settings = DeliverySettings.load(environment(tmp_path))
    assert (settings.delivery_table, settings.delivery_function) == ("delivery", "deliver")
    assert (settings.metrics_by, settings.metrics_namespace) == ("profile", "Streamkeeper")
