"""The machine that upgrades: its end after any failure. Its steps are those of handlers/upgrade, on a played stage."""

import json

import pytest

from tests.handlers.upgrade.world import World

STEPS = ("check", "plan", "ask", "look", "promote", "back", "look back")
# Those of an upgrade that does not go back.
GOOD = STEPS[:5]
# A failure that is tried again, and one that States.ALL does not match.
FAILURES = ("StoreUnavailable", "Sandbox.Timedout", "States.Timeout", "Lambda.Unknown", "States.DataLimitExceeded")


def failing(step: str, *errors: str) -> World:
    """Returns a stage on which this step fails with these errors."""
    return World(["demo:1"], "" if step in GOOD else "raises", failures={step: list(errors)})


@pytest.mark.parametrize("error", FAILURES)
@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_always_fails_ends_cleanly_or_with_an_alert(step: str, error: str) -> None:
    """The end is clean before any stream was touched, or once all went back. Otherwise an alert is sent."""
    world = failing(step, *[error] * 1000)
    end, cause = world.upgrade()
    dirty = step in ("promote", "back", "look back")
    assert (end, len(world.people), error in cause) == ("FailureDirty" if dirty else "FailureClean", int(dirty), True)


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_fails_for_a_while_is_tried_again(step: str) -> None:
    """A step that is killed, refused or timed out three times still leads to the same end."""
    world = failing(step, "StoreUnavailable", "Sandbox.Timedout", "States.Timeout")
    assert world.upgrade()[0] == ("Success" if step in GOOD else "FailureClean")


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ('{"errorMessage": "Another upgrade runs, mine.", "errorType": "X"}', "Another upgrade runs, mine."),
        (json.dumps({"errorMessage": 'It said "\\{é}".\n'}), 'It said "\\{é}".\n'),
        ("killed", '{"Error":"UpgradeRefused","Cause":"killed"}'),
        ('{"errorMessage": "cut o', '{"Error":"UpgradeRefused","Cause":"{\\"errorMessage\\": \\"cut o"}'),
        ("", '{"Error":"UpgradeRefused","Cause":""}'),
    ],
)
def test_an_upgrade_that_is_refused_has_changed_nothing(said: str, cause: str) -> None:
    """A refusal (another upgrade runs, or the version does not start) is not retried. Any Cause can be read."""
    world = failing("check", "UpgradeRefused")
    world.said = said
    assert (world.upgrade(), world.steps) == (("FailureClean", f"Nothing was changed. {cause}"), [])


def test_an_alert_that_cannot_be_sent_changes_no_end() -> None:
    """The end itself has the reason."""
    world = failing("look back", *["States.Timeout"] * 100)
    world.failures["publish"] = ["Sns.SnsException"] * 100
    assert world.upgrade()[0] == "FailureDirty"
