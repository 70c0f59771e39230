"""Judges the stage from facts and its template. Pure.

Tables, schedules and mappings should be as in the template. CloudFormation compares a template with the previous one
and not with what exists, so a table that was restored under its own name stays without time to live and without a
stream, whatever is deployed: such a finding has a `mend`. Invariant: a mend sets what the template says, and removes
nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from handlers.api.verdict import plural
from handlers.upgrade.deployed_versions import LATEST, OURS
from local.doctor import account_facts, fleet_checks
from local.doctor.account_facts import DELIVERY, MANAGER, Facts
from local.doctor.findings import DEPLOY, RUNBOOK, Finding, Mend, NoAnswer, State, compare, missing_answer
from local.doctor.stage_template import DeployedStage, Resource, repair_advice

# The states of a stack in which nothing is under way or half done.
_SETTLED = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "IMPORT_COMPLETE", "UPDATE_ROLLBACK_COMPLETE",
            "IMPORT_ROLLBACK_COMPLETE")  # fmt: skip


# What may differ between a version of a function and the deployed one: Lambda's name for it, and ours.
_DEPLOYED = {"CodeSha256": "code", "MemorySize": "memory", "Timeout": "time limit", "Environment": "variables",
             "VpcConfig": "VPC"}  # fmt: skip


def check_stage(deployed: DeployedStage, facts: Facts) -> Iterator[Finding]:
    """The findings about the parts of the stage, in their order."""
    if deployed.stack is not None:
        status = str(deployed.stack["StackStatus"])
        wanted = status if status in _SETTLED else "settled, such as UPDATE_COMPLETE"
        yield compare("stack", status, wanted, "Wait while it is IN_PROGRESS, otherwise deploy again")
    for table in deployed.of_type(account_facts.TABLE):
        yield from _check_table(deployed, table, facts["tables"][table.key])
    yield from _check_functions(deployed, facts)
    for key, answer in facts["machines"].items():
        found = answer if isinstance(answer, NoAnswer) else answer["status"]
        yield _check_text(f"state machine {key}", found, "ACTIVE", DEPLOY)
    yield from _check_mappings(deployed, facts)
    for rule in deployed.of_type(account_facts.RULE):
        answer = facts["rules"][rule.key]
        mend = Mend("events", "enable_rule", {"Name": rule.name})
        found = answer if isinstance(answer, NoAnswer) else answer["State"]
        yield _check_text(f"schedule {rule.key}", found, "ENABLED", repair_advice(deployed), mend)
    yield from fleet_checks.check_alarms(deployed, facts)
    yield from _check_storage(facts)
    yield from _check_api(deployed, facts)


def _check_text(what: str, found: Any, wanted: str, fix: str, mend: Mend | None = None) -> Finding:
    """The finding about an answer that must be this text."""
    return (
        missing_answer(what, found, fix)
        if isinstance(found, NoAnswer)
        else compare(what, str(found), wanted, fix, mend)
    )


# --- tables -----------------------------------------------------------------------------------------------------------


def _check_table(deployed: DeployedStage, resource: Resource, facts: Mapping[str, Any]) -> Iterator[Finding]:
    what, wanted = resource.key, resource.properties
    table = facts["table"]
    if isinstance(table, NoAnswer):
        fix = f"Restore it from a backup ({RUNBOOK}), or deploy the stage under another name"
        yield missing_answer(what, table, fix)
        return
    table = table["Table"]
    yield compare(what, table["TableStatus"], "ACTIVE", "Wait until DynamoDB has finished, then run doctor again")
    indexes = {one["IndexName"]: one.get("IndexStatus", "ACTIVE") for one in table.get("GlobalSecondaryIndexes", ())}
    for index in wanted.get("GlobalSecondaryIndexes", ()):
        name = index["IndexName"]
        yield compare(f"{what}, index {name}", indexes.get(name, "missing"), "ACTIVE", DEPLOY)
    fix, name = repair_advice(deployed), {"TableName": resource.name}
    yield _check_time_to_live(what, facts["ttl"], wanted.get("TimeToLiveSpecification", {}), fix, name)
    view = wanted.get("StreamSpecification", {}).get("StreamViewType", "")
    stream = table.get("StreamSpecification", {})
    mend = _update(name, StreamSpecification={"StreamEnabled": True, "StreamViewType": view}) if view else None
    found = stream.get("StreamViewType", "") if stream.get("StreamEnabled") else ""
    yield compare(f"{what}, stream", found or "off", view or (found or "off"), f"Nothing is delivered: {fix}", mend)
    yield _check_backups(what, facts["backups"], wanted.get("PointInTimeRecoverySpecification", {}), fix, name)
    if deployed.stack is None:
        yield Finding(State.ABSENT, f"{what}, encryption", "the run on this machine encrypts no tables")
    elif wanted.get("SSESpecification", {}).get("SSEEnabled"):
        yield _check_encryption(what, table.get("SSEDescription", {}), wanted["SSESpecification"], fix, name)
    if wanted.get("DeletionProtectionEnabled"):
        found = _on_or_off(table.get("DeletionProtectionEnabled"))
        yield compare(f"{what}, deletion protection", found, "on", fix, _update(name, DeletionProtectionEnabled=True))


def _check_encryption(
    what: str, sse: Mapping[str, Any], wanted: Mapping[str, Any], fix: str, name: Mapping[str, str]
) -> Finding:
    """A restored table may have AWS's key in place of the template's. An alias is compared with no key."""
    key, arn = str(wanted.get("KMSMasterKeyId", "")), str(sse.get("KMSMasterKeyArn", ""))
    is_on, is_named = sse.get("Status") in ("ENABLED", "UPDATING"), bool(key) and "alias/" not in key
    found = sse.get("SSEType", "KMS") if is_on else "AWS's own key, free"
    if is_on and is_named and arn.rpartition("/")[2] != key.rpartition("/")[2]:
        found = f"{found}, {arn or 'another key'}"
    own = {"SSEType": "KMS", "KMSMasterKeyId": key} if key else {}
    return compare(f"{what}, encryption", found, "KMS", fix, _update(name, SSESpecification={"Enabled": True, **own}))


def _on_or_off(flag: Any) -> str:
    return "on" if flag else "off"


def _update(name: Mapping[str, str], **changes: Any) -> Mend:
    return Mend("dynamodb", "update_table", {**name, **changes})


def _check_time_to_live(what: str, ttl: Any, wanted: Mapping[str, Any], fix: str, name: Mapping[str, str]) -> Finding:
    attribute = str(wanted.get("AttributeName", ""))
    specification = {"AttributeName": attribute, "Enabled": True}
    mend = Mend("dynamodb", "update_time_to_live", {**name, "TimeToLiveSpecification": specification})
    if isinstance(ttl, NoAnswer):
        return missing_answer(f"{what}, time to live", ttl, fix)
    told = ttl["TimeToLiveDescription"]
    is_on = told["TimeToLiveStatus"] in ("ENABLED", "ENABLING")
    found = told.get("AttributeName", "on") if is_on else "off"
    # AWS refuses another attribute until an hour after the former one was switched off.
    words = f"Items are kept forever: {'switch that off, and an hour later ' if is_on else ''}{fix}"
    return compare(f"{what}, time to live", found, attribute or found, words, None if is_on else mend)


def _check_backups(what: str, backups: Any, wanted: Mapping[str, Any], fix: str, name: Mapping[str, str]) -> Finding:
    title = f"{what}, point-in-time recovery"
    if isinstance(backups, NoAnswer):
        return missing_answer(title, backups, fix)
    told = backups["ContinuousBackupsDescription"].get("PointInTimeRecoveryDescription", {})
    found = _on_or_off(told.get("PointInTimeRecoveryStatus") == "ENABLED")
    specification = {"PointInTimeRecoveryEnabled": True}
    mend = Mend("dynamodb", "update_continuous_backups", {**name, "PointInTimeRecoverySpecification": specification})
    if not wanted.get("PointInTimeRecoveryEnabled"):
        advice = "" if found == "on" else "`point_in_time_recovery: true` in the settings keeps a backup of 35 days"
        return Finding(State.OK if found == "on" else State.NOTE, title, found, fix=advice)
    return compare(title, found, "on", fix, mend)


# --- functions, versions and what calls them --------------------------------------------------------------------------


def _check_functions(deployed: DeployedStage, facts: Facts) -> Iterator[Finding]:
    for key, answer in facts["functions"].items():
        found = answer
        if not isinstance(answer, NoAnswer):
            state, update = answer.get("State", "Active"), answer.get("LastUpdateStatus", "Successful")
            found = f"{state}, {update}"
        yield _check_text(f"function {key}", found, "Active, Successful", DEPLOY)
    yield from _check_reserved(deployed, facts)
    stable, upgrade = facts["stable"], f"`streamkeeper upgrade{deployed.option}`"
    alias = stable["alias"]
    if isinstance(alias, NoAnswer):
        yield missing_answer("alias stable, which all streams call", alias, DEPLOY)
        return
    version, now = stable["version"], facts["functions"].get(MANAGER)
    number = alias["FunctionVersion"]
    if isinstance(version, NoAnswer):
        yield missing_answer(
            f"version {number}, which streams run", version, f"{upgrade} moves them to what is deployed"
        )
        return
    if number == LATEST:
        advice = f"With `deploy_by_waves: true` the next deployment reaches streams only by {upgrade}"
        yield Finding(State.NOTE, "version that streams run", f"{LATEST}, always the deployed one", fix=advice)
        return
    other = []
    if now is not None and not isinstance(now, NoAnswer):
        other = [word for name, word in _DEPLOYED.items() if version.get(name) != now.get(name)]
    machine = facts["machines"].get("Connections")
    if machine is not None and not isinstance(machine, NoAnswer) and machine.get("definition", "").endswith(OURS):
        other.append("definition")
    words = f"{number}, the deployed one"
    if other:
        words = f"{number}, not the deployed one, whose {' and '.join(other)} {'differ' if other[1:] else 'differs'}"
    yield Finding(
        State.NOTE if other else State.OK,
        "version that streams run",
        words,
        fix=f"{upgrade} moves them to it" if other else "",
    )


def _check_reserved(deployed: DeployedStage, facts: Facts) -> Iterator[Finding]:
    """Yields reservations that differ from the template; the button "Throttle" of Lambda's console sets 0."""
    for resource in deployed.of_type(account_facts.FUNCTION):
        answer, wanted = facts["reserved"][resource.key], resource.properties.get("ReservedConcurrentExecutions")
        if isinstance(answer, NoAnswer):
            yield missing_answer("reserved concurrency", answer, DEPLOY)
            return
        if (found := answer.get("ReservedConcurrentExecutions")) != wanted:
            here, there = ("none" if one is None else str(one) for one in (found, wanted))
            change = {} if wanted is None else {"ReservedConcurrentExecutions": wanted}
            mend = Mend(
                "lambda",
                f"{'put' if change else 'delete'}_function_concurrency",
                {"FunctionName": resource.name, **change},
            )
            what = f"function {resource.key}, reserved concurrency"
            yield compare(what, here, there, repair_advice(deployed), mend)


def _check_mappings(deployed: DeployedStage, facts: Facts) -> Iterator[Finding]:
    """Yields whether the table's stream calls the delivering function."""
    for resource in deployed.of_type(account_facts.MAPPING):
        what, table = "delivery from EventsTable's stream", facts["tables"]["EventsTable"]["table"]
        known, queue = facts["mappings"], facts["queue"]
        if isinstance(known, NoAnswer) or isinstance(table, NoAnswer):
            yield missing_answer(what, known if isinstance(known, NoAnswer) else table, DEPLOY)
            continue
        stream = table["Table"].get("LatestStreamArn", "")
        is_on = table["Table"].get("StreamSpecification", {}).get("StreamEnabled", False)
        here = [one for one in known if is_on and one["EventSourceArn"] == stream]
        fix = repair_advice(deployed)
        if here:
            (one, *_) = here
            mend = Mend("lambda", "update_event_source_mapping", {"UUID": one["UUID"], "Enabled": True})
            found = "Enabled" if one["State"] in ("Enabled", "Creating", "Enabling", "Updating") else one["State"]
            yield compare(what, found, "Enabled", fix, mend)
            continue
        arn = "" if isinstance(queue, NoAnswer) else queue["Attributes"]["QueueArn"]
        mend_new = Mend(
            "lambda",
            "create_event_source_mapping",
            {
                **{key: value for key, value in resource.properties.items() if not isinstance(value, dict)},
                "FilterCriteria": resource.properties["FilterCriteria"],
                "FunctionName": deployed.id_of(DELIVERY),
                "EventSourceArn": stream,
                "DestinationConfig": {"OnFailure": {"Destination": arn}},
            },
        )
        found = "the function is called for a stream that the table no longer has" if known else "no function is called"
        # The stream comes first, because it gets its ARN when it is switched on.
        yield Finding(
            State.WRONG,
            what,
            found,
            "called for the table's own stream",
            f"Nothing is delivered: {fix}",
            mend_new if is_on and arn else None,
        )


# --- queue and API --------------------------------------------------------------------------------------------------


def _check_storage(facts: Facts) -> Iterator[Finding]:
    queue, bucket = facts["queue"], facts["bucket"]
    if isinstance(queue, NoAnswer):
        yield missing_answer("dead-letter queue", queue, DEPLOY)
    else:
        number = int(queue["Attributes"]["ApproximateNumberOfMessages"])
        yield Finding(
            State.NOTE if number else State.OK,
            "dead-letter queue",
            plural(number, "message"),
            fix="`streamkeeper redrive --dry-run` lists them" if number else "",
        )
    yield (
        missing_answer("bucket", bucket, DEPLOY)
        if isinstance(bucket, NoAnswer)
        else Finding(State.OK, "bucket", "exists")
    )


def _check_api(deployed: DeployedStage, facts: Facts) -> Iterator[Finding]:
    stage = facts["api_stage"]
    yield (
        missing_answer("API", stage, DEPLOY) if isinstance(stage, NoAnswer) else Finding(State.OK, "API", "deployed")
    )
    for key, answer in facts["api_keys"].items():
        what = "API key"
        if isinstance(answer, NoAnswer):
            yield missing_answer(what, answer, DEPLOY)
            continue
        lists = [one for one in facts["api_plan_keys"].values() if not isinstance(one, NoAnswer)]
        is_planned = any(one["id"] == key for each in lists for one in each.get("items", ()))
        found = f"{'enabled' if answer.get('enabled') else 'disabled'}, {'in' if is_planned else 'not in'} a usage plan"
        yield compare(what, found, "enabled, in a usage plan", DEPLOY)
    if not facts["api_keys"] and deployed.stack is not None:
        yield Finding(State.OK, "API key", "none: requests are signed (api_auth: iam)")
