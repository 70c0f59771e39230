"""Judges whether the account has room for the stage's fleet, whether its upstreams and sinks answer, and its alarms.

Pure. If AWS does not tell a quota, its default is assumed (`local/scale/quotas.toml`), and the finding says so. The
needs of the fleet follow from the number of executions that hold streams: a function each, and a tenth more for
handovers. If CloudWatch has counted the usage, that is shown too.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from handlers.api.verdict import plural
from handlers.group import is_group
from local.costs.prices import Prices
from local.costs.stage_costs import BESIDE_CONNECTIONS, IN_HANDOVERS, encryption_usd
from local.doctor import account_facts
from local.doctor.account_facts import MANAGER, Facts
from local.doctor.findings import DEPLOY, RUNBOOK, Finding, Mend, NoAnswer, State, missing_answer
from local.doctor.stage_template import DeployedStage, Resource, repair_advice
from local.scale.fleet import quota_in_region, read_quotas

# From this share of a quota on, more should be requested.
NEAR = 0.8
# What must stay unreserved in an account: docs/deploy.md#concurrency.
UNRESERVED = 100
_ROUTE = "Check the address, and in a VPC the routes and the security group (docs/deploy.md#a-vpc)"
_ASK_FOR_MORE = "Ask for more in Service Quotas (docs/scale.md)"


def check_fleet(deployed: DeployedStage, facts: Facts, prices: Prices) -> Iterator[Finding]:
    """Yields the findings about quotas, upstreams, secrets and sinks."""
    held = facts["held"]
    if isinstance(held, NoAnswer):
        yield missing_answer("running streams", held, "")
        in_use: set[str] = set()
    else:
        # A stream of a group uses the group's function.
        functions = len({holder for holder in held.values() if not is_group(holder)})
        streams = [stream_id for stream_id in held if not is_group(stream_id)]
        in_use = {stream_id.partition(":")[0] for stream_id in streams}
        yield Finding(State.OK, "fleet", f"{plural(len(streams), 'stream')} in {plural(functions, 'function')}")
        yield from _check_quotas(deployed, facts, functions)
        yield from _check_encryption_price(deployed, facts, functions, prices)
    yield from _check_profiles(facts["profiles"], in_use)
    for label, answers in facts["sinks"].items():
        yield from _check_sink(label, answers)


def _check_quotas(deployed: DeployedStage, facts: Facts, held: int) -> Iterator[Finding]:
    measured = facts["measured"] if isinstance(facts["measured"], Mapping) else {}
    functions = {one.key: one for one in deployed.of_type(account_facts.FUNCTION)}
    reserved = {key: one.properties.get("ReservedConcurrentExecutions", 0) for key, one in functions.items()}
    for_manager = reserved.pop(MANAGER, 0)
    others = sum(reserved.values()) + (UNRESERVED if any(reserved.values()) or for_manager else 0)
    at_once = math.ceil(1.1 * held)
    account = facts["concurrency"]
    quota = account if isinstance(account, NoAnswer) else account["AccountLimit"]["ConcurrentExecutions"]
    used = measured.get("functions")
    yield _check_quota("concurrent functions of the account", quota, at_once + others, used, "concurrency")
    if for_manager:
        yield _check_quota("concurrent functions, by connection_concurrency", for_manager, at_once, None, "")
    limits = facts["limits"]
    units = (
        limits
        if isinstance(limits, NoAnswer)
        else limits.get("TableMaxWriteCapacityUnits", _default_quota("table_writes"))
    )
    for table in deployed.of_type(account_facts.TABLE):
        minute = measured.get(table.key)
        most = None if minute is None else minute / 60
        yield _check_quota(f"write units a second of {table.key}", units, 0, most, "table_writes")
    yield from _check_states_and_api(deployed, facts, held, measured)


def _check_states_and_api(
    deployed: DeployedStage, facts: Facts, held: int, measured: Mapping[str, float]
) -> Iterator[Finding]:
    """The findings about Step Functions and the API."""
    if deployed.stack is None:
        yield Finding(State.ABSENT, "quotas of Step Functions", "the run on this machine has none")
    else:
        manager = facts["functions"].get(MANAGER, NoAnswer("it is missing"))
        variables = {} if isinstance(manager, NoAnswer) else manager.get("Environment", {}).get("Variables", {})
        # Two transitions for each connection and its wait, in two lanes that take turns.
        a_second = 2 * held / float(variables.get("WAIT_S", 840))
        yield _check_quota("open executions", _default_quota("open_executions"), held, None, "open_executions")
        for name, title, needed, key in (
            ("transitions", "state transitions a second", a_second, "transitions"),
            ("starts", "StartExecution a second", 0.0, "start_execution"),
        ):
            refill = measured.get(f"{name}_refill")
            quota = NoAnswer("CloudWatch has no figure yet") if refill is None else refill
            yield _check_quota(title, quota, needed, None, key, refused=measured.get(f"{name}_throttled", 0))
    stage, account = facts["api_stage"], facts["api_account"]
    if isinstance(stage, NoAnswer) or isinstance(account, NoAnswer):
        yield missing_answer("requests a second of the API", stage if isinstance(stage, NoAnswer) else account, "")
        return
    rate = max((one.get("throttlingRateLimit", 0) for one in stage.get("methodSettings", {}).values()), default=0)
    quota = account.get("throttleSettings", {}).get("rateLimit") or _default_quota("api")
    yield _check_quota("requests a second of all APIs of the account", quota, rate, None, "api")
    if (minute := measured.get("requests")) is not None and rate:
        yield _check_quota("requests a second of the stage's API", rate, 0, minute / 60, "")


def _check_quota(what: str, quota: Any, needed: float, used: float | None, key: str, refused: float = 0) -> Finding:
    """Returns the finding about a limit; `refused` is how often it was exceeded in the last hours."""
    by = ""
    if isinstance(quota, NoAnswer):
        if quota.is_absent:
            return missing_answer(f"quota, {what}", quota, "")
        quota, by = _default_quota(key), f" by default; AWS did not return the account's own ({quota.reason})"
    most = max(needed, used or 0)
    asked = f"the fleet needs {_number(needed)}" if needed else ""
    measured = (
        f"the busiest minute of the last {account_facts.HOURS} h took {_number(used)}" if used is not None else ""
    )
    words = "; ".join(part for part in (f"{_number(quota)}{by}", asked, measured) if part)
    if refused:
        return Finding(
            State.WRONG, f"quota, {what}", f"{words}; {_number(refused)} were refused", "none refused", _ASK_FOR_MORE
        )
    if most > quota:
        return Finding(State.WRONG, f"quota, {what}", words, f"{_number(most)} or more", _ASK_FOR_MORE)
    is_near = most > NEAR * quota
    return Finding(State.NOTE if is_near else State.OK, f"quota, {what}", words, fix=_ASK_FOR_MORE if is_near else "")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"


def _default_quota(key: str) -> float:
    """AWS's default in a region with lower quotas."""
    return float(quota_in_region(read_quotas()[key]))


def _check_encryption_price(deployed: DeployedStage, facts: Facts, held: int, prices: Prices) -> Iterator[Finding]:
    """Yields the monthly cost of the tables' keys. A key is yours if the template names it; AWS's own has no price."""
    tables = [(one, facts["tables"][one.key]["table"]) for one in deployed.of_type(account_facts.TABLE)]
    told = [(one, table["Table"].get("SSEDescription", {})) for one, table in tables if not isinstance(table, NoAnswer)]
    encrypted = [(one, sse) for one, sse in told if sse.get("SSEType") == "KMS"]
    if not encrypted:
        return
    usd = encryption_usd(IN_HANDOVERS * held + BESIDE_CONNECTIONS, len(encrypted), prices)
    named = (one.properties.get("SSESpecification", {}).get("KMSMasterKeyId") for one, _ in encrypted)
    own = {str(key) for key in named if key}
    words = f", and {len(own) * prices.usd('kms', 'key_month'):.2f} $ for {plural(len(own), 'key')} of yours"
    yield Finding(
        State.OK,
        "price of the tables' encryption",
        f"up to {usd:.2f} $ a month for requests to KMS{words if own else ''}",
    )


# --- upstreams, secrets and sinks -------------------------------------------------------------------------------------


def _check_profiles(profiles: Any, in_use: Collection[str]) -> Iterator[Finding]:
    """Yields the findings about each profile. One note names the unused profiles that have a problem."""
    if isinstance(profiles, NoAnswer):
        yield missing_answer("secrets and upstreams, as the functions reach them", profiles, "")
        return
    unused = []
    for name, answer in sorted(profiles.items()):
        what = f"profile {name}"
        if isinstance(answer, NoAnswer):
            yield missing_answer(what, answer, "")
            continue
        checks = [(what, answer["problem"], "valid", "docs/profiles.md")] if "problem" in answer else []
        secrets, hosts = answer.get("secrets", {}), answer.get("hosts", {})
        if answer.get("newest"):
            checks.append(
                (f"{what}, newest version", answer["newest"], "valid", "docs/profiles.md#profiles-in-a-bucket")
            )
        checks += [(f"{what}, {secret}", why, "readable", "docs/deploy.md#secrets") for secret, why in secrets.items()]
        checks += [(f"{what}, {host}", why, "reachable", _ROUTE) for host, why in hosts.items()]
        for title, why, wanted, fix in checks:
            if not why:
                yield Finding(State.OK, title, wanted)
            elif name in in_use:
                yield Finding(State.WRONG, title, why, wanted, fix)
            elif name not in unused:
                unused.append(name)
    if unused:
        named = f"{len(unused)} with a problem: {', '.join(unused)}"
        yield Finding(
            State.NOTE, "profiles that no stream uses", named, fix="docs/deploy.md#secrets, before one is used"
        )


def _check_sink(label: str, answers: Mapping[str, Any]) -> Iterator[Finding]:
    what = f"sink {label}"
    if "there" in answers:
        there = answers["there"]
        fix = "Create it, or remove it from `deliver`: its events wait until then (docs/deliver.md)"
        yield (missing_answer(what, there, fix) if isinstance(there, NoAnswer) else Finding(State.OK, what, "exists"))
    if "allowed" in answers:
        allowed = answers["allowed"]
        title = f"{what}, permission of the delivery"
        if isinstance(allowed, NoAnswer):
            yield missing_answer(title, allowed, "Deploy the stage again")
        else:
            (result, *_) = allowed["EvaluationResults"]
            is_allowed = result["EvalDecision"] == "allowed"
            found = f"{result['EvalActionName']} is {result['EvalDecision']}"
            wanted, fix = ("", "") if is_allowed else ("allowed", "Deploy the stage again: its role follows `deliver`")
            yield Finding(State.OK if is_allowed else State.WRONG, title, found, wanted, fix)


_ACTIONS = ("AlarmActions", "OKActions", "InsufficientDataActions")
# What CloudWatch returns for an alarm that does not set it.
_DEFAULTS = {"TreatMissingData": "missing"}


def check_alarms(deployed: DeployedStage, facts: Facts) -> Iterator[Finding]:
    """The findings about the alarms and their subscribers.

    An alarm is compared by when it acts and which topic it notifies. Actions that a person has added are left alone.
    """
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
