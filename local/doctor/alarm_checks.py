"""Judges the alarms: whether each is as the template says, which topic it notifies, and which are in alarm.

An alarm is compared by when it acts and which topic it notifies. Actions that a person has added are left alone. Pure.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from local.doctor import account_facts
from local.doctor.account_facts import Facts
from local.doctor.findings import DEPLOY, RUNBOOK, Finding, Mend, NoAnswer, State, missing_answer
from local.doctor.stage_template import DeployedStage, Resource, repair_advice

_ACTIONS = ("AlarmActions", "OKActions", "InsufficientDataActions")
# What CloudWatch returns for an alarm that does not set it.
_DEFAULTS = {"TreatMissingData": "missing"}


def check_alarms(deployed: DeployedStage, facts: Facts) -> Iterator[Finding]:
    """The findings about the alarms and their subscribers."""
    for topic in deployed.of_type(account_facts.TOPIC):
        yield _check_subscribers(topic, facts["subscriptions"][topic.key])
    alarms, wanted = facts["alarms"], deployed.of_type(account_facts.ALARM)
    if isinstance(alarms, NoAnswer):
        yield missing_answer("alarms", alarms, DEPLOY)
        return
    known = {one["AlarmName"]: one for one in alarms}
    found = [finding for one in wanted for finding in _check_alarm(deployed, one, known.get(one.name))]
    yield from found
    if not found:
        yield Finding(State.OK, "alarms", f"{len(wanted)}, none in state ALARM")


def _check_alarm(deployed: DeployedStage, resource: Resource, alarm: Mapping[str, Any] | None) -> Iterator[Finding]:
    """Yields what is wrong with an alarm. CloudFormation does not create a deleted alarm again; the mend does."""
    name, should = resource.key.removesuffix("Alarm"), {**resource.properties, "ActionsEnabled": True}
    what, fix, put = f"alarm {name}", repair_advice(deployed), {"AlarmName": resource.name, **should}
    if alarm is None:
        yield Finding(State.WRONG, what, "missing", "there", fix, Mend("cloudwatch", "put_metric_alarm", put))
        return
    others = {
        key: one for key, one in should.items() if key != "AlarmDescription" and not _is_as_wanted(key, one, alarm)
    }
    if others:
        found, wanted = (
            ", ".join(f"{key} {_value_in_words(one.get(key))}" for key in others) for one in (alarm, should)
        )
        put |= {key: list(dict.fromkeys([*should.get(key, ()), *alarm.get(key, ())])) for key in _ACTIONS}
        mend = Mend("cloudwatch", "put_metric_alarm", put)
        yield Finding(State.WRONG, f"{what}, settings", found, wanted, fix, mend)
    if alarm.get("StateValue") == "ALARM":
        yield Finding(State.WRONG, what, "ALARM", "OK", f"{RUNBOOK}#{name.lower()}")


def _is_as_wanted(key: str, wanted: Any, alarm: Mapping[str, Any]) -> bool:
    found = alarm.get(key, _DEFAULTS.get(key))
    if key in _ACTIONS:
        return set(wanted) <= set(found or ())
    if key == "Dimensions":
        return len(wanted) == len(found or ()) and all(one in found for one in wanted)
    return bool(found == wanted)


def _value_in_words(value: Any) -> str:
    """Returns a property's value for a person: a list by the ends of its ARNs."""
    if isinstance(value, list):
        named = (one["Value"] if isinstance(one, Mapping) else one for one in value)
        return " and ".join(one.rpartition(":")[2] for one in named) or "none"
    return "none" if value is None else str(int(value) if isinstance(value, float) and value.is_integer() else value)


def _check_subscribers(topic: Resource, answer: Any) -> Finding:
    what = "subscribers of the alarms"
    if isinstance(answer, NoAnswer):
        return missing_answer(what, answer, DEPLOY)
    waiting = [one["Endpoint"] for one in answer if not one["SubscriptionArn"].startswith("arn:")]
    declared = [one["Endpoint"] for one in topic.properties.get("Subscription") or ()]
    lost = [one for one in declared if one not in [known["Endpoint"] for known in answer]]
    if waiting:
        fix = "Follow the link in the mail that SNS has sent"
        return Finding(State.WRONG, what, f"{', '.join(waiting)} not confirmed", "confirmed", fix)
    if lost:
        fix = "Subscribe it to the topic again, or remove it from `alert_email`"
        return Finding(State.WRONG, what, f"{', '.join(lost)} not subscribed", "subscribed", fix)
    if not answer:
        return Finding(State.NOTE, what, "nobody", fix="Set `alert_email` in the settings, or subscribe to the topic")
    return Finding(State.OK, what, f"{len(answer)}, confirmed")
