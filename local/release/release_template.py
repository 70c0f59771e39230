"""Makes the template of a release from several variants that osls has packaged. Pure.

Invariant: resources are those of osls; only parameters, conditions and rules are added, and only the deploy tool's own
parts are left out: its bucket, its exports, the instant in the name of the API's deployment.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from local.release import variants
from local.release.variants import Clash, parameter_name

DEPLOYMENT = "ApiGatewayDeployment"
_CODE = {"S3Bucket": {"Ref": "CodeBucket"}, "S3Key": {"Ref": "CodeKey"}}
_OWN_TOOL = ("ServerlessDeploymentBucket", "ServerlessDeploymentBucketPolicy")
_CONCURRENCY = ("ConnectionConcurrency", "ControlConcurrency", "WatchConcurrency")
# CloudFormation cannot add or compare numbers: it can only look for a text in a list. So settings that depend on each
# other have few values here (`handover_rules`), or bounds within which every choice is valid: jitter_s is less than any
# wait_s, a first back-off no longer than the longest, and renew_after less than give_up_after.
_MARGINS = (5, 10, 15, 20, 30, 45, 60)
BOUNDS: dict[str, dict[str, Any]] = {
    "function_timeout_s": {"enum": [*range(120, 901, 60)]}, "wait_s": {"enum": [*range(60, 851, 10)]},
    "margin_s": {"enum": [*_MARGINS]}, "jitter_s": {"maximum": 59}, "throttle_delay_s": {"maximum": 300},
    "throttle_max_delay_s": {"minimum": 300}, "renew_after": {"maximum": 130}, "give_up_after": {"minimum": 131},
    "lease_every_s": {"maximum": 39}, "streams_per_function": {"maximum": 352},
}  # fmt: skip
# The least time between a lane's wait and the margin of the other one's function: prod's, in which 352 streams open.
_HANDOVER_S = 40
# Unlike prod: a new account may reserve nothing, and a rolled-back creation must delete its tables.
_DEFAULTS = {"control_concurrency": 0, "watch_concurrency": 0, "deletion_protection": False}
_GROUPS = (
    ("The code", ("CodeBucket", "CodeKey", "Stage")),
    ("Profiles", ("ProfilesBucket", "ProfilesFolder", "ProfileSinks", "HttpSinks")),
    ("Network", ("VpcSubnetIds", "VpcSecurityGroupIds")),
    ("Lives of functions and executions", tuple(map(parameter_name, variants.TIMING))),
)

Template = dict[str, Any]


def make_template(
    packaged: Mapping[str, Template],
    second: Template,
    schema: Template,
    stage: Mapping[str, Any],
    descriptions: Mapping[str, str],
    version: str,
) -> Template:
    """The template of a release; raises Clash.

    `packaged` are the compiled templates by the condition that does not hold in each, or ""; `second` is the one with
    the second values; `schema` is that of settings, and `stage` has the defaults of parameters.
    """
    first = variants.variant_settings(stage)
    known = variants.parameter_values(first)
    plain = {name: without_tool_parts(one) for name, one in packaged.items()}
    base = plain.pop("")
    other = variants.insert_parameters(
        without_tool_parts(second), variants.parameter_values(variants.variant_settings(stage, second=True))
    )
    for place in _differences(variants.insert_parameters(base, known), other):
        raise Clash(f"a value that stands for a parameter is also the template's own, or one follows from it: {place}")
    made: Template = {}
    for part in ("Resources", "Outputs"):
        each = [variants.merge_resources(base[part], one[part], name) for name, one in plain.items()]
        made[part] = variants.insert_parameters(variants.merge_variants(base[part], each, part), known)
    _finish_resources(made["Resources"])
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"Streamkeeper {version}: keeps streams that never end connected from AWS Lambda",
        "Metadata": {"Streamkeeper": {"Version": version}, **_parameter_groups()},
        "Parameters": _parameters(schema, stage, descriptions, version),
        "Rules": {**_rules(), **setting_rules(schema)},
        "Conditions": _conditions(json.dumps(made)),
        **made,
    }


def without_tool_parts(compiled: Template) -> Template:
    """A compiled template without the deploy tool's own parts."""
    text = re.sub(rf"{DEPLOYMENT}[0-9]+", DEPLOYMENT, json.dumps(compiled))
    found = json.loads(text)
    resources = {name: one for name, one in found["Resources"].items() if name not in _OWN_TOOL}
    for one in resources.values():
        if one["Type"] == "AWS::Lambda::Function":
            one["Properties"]["Code"] = _CODE
    outputs = {name: one for name, one in found["Outputs"].items() if not name.startswith("Serverless")}
    for output in outputs.values():
        output.pop("Export", None)
    return {"Resources": resources, "Outputs": outputs}


def _finish_resources(resources: Template) -> None:
    for one in resources.values():
        reserved = one.get("Properties", {}).get("ReservedConcurrentExecutions")
        if reserved is not None:
            # Lambda distinguishes no reservation from a reservation of 0.
            absent = {"Fn::If": [f"Has{reserved['Ref']}", reserved, variants.NO_VALUE]}
            one["Properties"]["ReservedConcurrentExecutions"] = absent
    # An API has what its methods were when it was deployed. So a version that changes them has another deployment, and
    # each of the settings that do.
    api = {name: one for name, one in resources.items() if one["Type"].startswith("AWS::ApiGateway::")}
    digest = hashlib.sha256(json.dumps(api, sort_keys=True).encode()).hexdigest()[:12]
    deployment = resources.pop(DEPLOYMENT)
    refs = {}
    for signed, kept in (("IsSigned", "HasProfiles"), ("IsSigned", ""), ("", "HasProfiles"), ("", "")):
        condition = f"{signed or 'NotIsSigned'}{kept or 'NotHasProfiles'}"
        name = f"{DEPLOYMENT}{digest}{condition}"
        resources[name] = deployment | {"Condition": condition}
        refs[signed, kept] = {"Ref": name}
    for one in resources.values():
        if one.get("DependsOn") == DEPLOYMENT:
            one["DependsOn"] = "ApiGatewayStage"  # which has it
    resources["ApiGatewayStage"]["Properties"]["DeploymentId"] = {
        "Fn::If": [
            "IsSigned",
            {"Fn::If": ["HasProfiles", refs["IsSigned", "HasProfiles"], refs["IsSigned", ""]]},
            {"Fn::If": ["HasProfiles", refs["", "HasProfiles"], refs["", ""]]},
        ]
    }


def _parameters(schema: Template, stage: Mapping[str, Any], descriptions: Mapping[str, str], version: str) -> Template:
    made: Template = {
        "CodeBucket": {"Type": "String", "Description": "The bucket, in this region, with the zip of the release"},
        "CodeKey": {
            "Type": "String", "Default": f"streamkeeper-{version}.zip", "Description": "The key of the zip in it",
        },
        "Stage": {
            "Type": "String", "Default": "prod", "AllowedPattern": "^[a-z][a-z0-9-]{0,14}$",
            "ConstraintDescription": "must be at most 15 lowercase letters, digits and hyphens, a letter first",
            "Description": "Is part of every name: streamkeeper-<stage>-events, the secrets in /streamkeeper/<stage>/",
        },
        "HttpSinks": {
            "Type": "String", "Default": "false", "AllowedValues": ["false", "true"],
            "Description": "Whether profiles of the bucket may deliver to webhooks and other addresses",
        },
    }  # fmt: skip
    for setting, rules in schema["properties"].items():
        if setting in variants.FIXED or setting == "upstreams":
            continue
        default = _DEFAULTS.get(setting, stage[setting])
        made[parameter_name(setting)] = {
            **_type(rules | BOUNDS.get(setting, {})),
            "Default": str(default).lower() if isinstance(default, bool) else default,
            "Description": descriptions[setting],
        }
    # The placeholder for addresses is a separate parameter.
    made["ProfileSinks"] |= {
        "AllowedPattern": made["ProfileSinks"]["AllowedPattern"].replace("http|", ""),
        "ConstraintDescription": "must be ARNs separated by commas, or '' for none",
        "Description": "what profiles of the bucket may deliver to: ARNs separated by commas",
    }
    return made


def _type(rules: Mapping[str, Any]) -> Template:
    match rules:
        case {"enum": allowed}:
            kind = "Number" if all(isinstance(one, int) for one in allowed) else "String"
            return {"Type": kind, "AllowedValues": allowed}
        case {"type": "integer"}:
            return {"Type": "Number", "MinValue": rules["minimum"], "MaxValue": rules["maximum"]}
        case {"type": "boolean"}:
            return {"Type": "String", "AllowedValues": ["false", "true"]}
    # Lookaheads are for languages in which $ also matches before a final line break.
    return {
        "Type": "String",
        "AllowedPattern": rules["pattern"].replace("(?!\\n)", ""),
        "ConstraintDescription": f"must be {rules['mustBe']}",
    }


def handover_rules() -> Template:
    """The rules that leave time for a handover, one for each life of a function."""
    waits = BOUNDS["wait_s"]["enum"]
    made: Template = {}
    for limit_s in BOUNDS["function_timeout_s"]["enum"]:
        assertions = []
        for margin_s in _MARGINS:
            fit = [str(wait_s) for wait_s in waits if wait_s + margin_s + _HANDOVER_S <= limit_s]
            is_other, fits = {"Fn::Not": [_equals("MarginS", str(margin_s))]}, {"Fn::Contains": [fit, {"Ref": "WaitS"}]}
            most = f"WaitS must be at most {fit[-1]}" if fit else "MarginS must be less"
            sentence = f"With FunctionTimeoutS {limit_s} and MarginS {margin_s}, {most}: a handover needs the rest."
            check = {"Fn::Or": [is_other, fits]} if fit else is_other
            assertions.append({"Assert": check, "AssertDescription": sentence})
        chosen = _equals("FunctionTimeoutS", str(limit_s))
        made[f"HandoverIn{limit_s}S"] = {"RuleCondition": chosen, "Assertions": assertions}
    return made


def setting_rules(schema: Template) -> Template:
    """The rules of settings that a parameter's type cannot have: a number that is left out, what needs a bucket."""
    made: Template = {}
    for name, rules in schema["properties"].items():
        if "not" in rules:
            assertion = {"Fn::Not": [_equals(parameter_name(name), str(rules["not"]["const"]))]}
            sentence = f"{parameter_name(name)} must be {rules['mustBe']}."
            made[f"{parameter_name(name)}IsTaken"] = {
                "Assertions": [{"Assert": assertion, "AssertDescription": sentence}]
            }
    absent = [("ProfilesFolder", ""), ("ProfileSinks", ""), ("HttpSinks", "false")]
    sentence = "{} is for the profiles of a bucket: set ProfilesBucket, or leave it out."
    assertions = [
        {"Assert": _equals(name, value), "AssertDescription": sentence.format(name)} for name, value in absent
    ]
    return {**made, "BucketOfProfiles": {"RuleCondition": _equals("ProfilesBucket", ""), "Assertions": assertions}}


def _rules() -> Template:
    subnets, groups = (_equals(one, "") for one in ("VpcSubnetIds", "VpcSecurityGroupIds"))
    neither, both = {"Fn::And": [subnets, groups]}, {"Fn::And": [{"Fn::Not": [subnets]}, {"Fn::Not": [groups]}]}
    sentence = "VpcSubnetIds and VpcSecurityGroupIds belong together: set both, or neither."
    vpc = {"Assertions": [{"Assert": {"Fn::Or": [neither, both]}, "AssertDescription": sentence}]}
    return {"VpcIsWhole": vpc, **handover_rules()}


def _conditions(text: str) -> Template:
    """The conditions that the rest of the template, `text`, refers to."""
    made: Template = {
        "IsSigned": _equals("ApiAuth", "iam"),
        "LogsMachines": {"Fn::Not": [_equals("MachineLogLevel", "OFF")]},
        "LogsCalls": _equals("LogApiCalls", "true"),
        "HasEmail": {"Fn::Not": [_equals("AlertEmail", "")]},
        "HasVpc": {"Fn::Not": [_equals("VpcSubnetIds", "")]},
        "HasBoundary": {"Fn::Not": [_equals("PermissionsBoundary", "")]},
        "HasProfiles": {"Fn::Not": [_equals("ProfilesBucket", "")]},
        "HasSinks": {"Fn::Not": [_equals("ProfileSinks", "")]},
        "HasHttpSinks": _equals("HttpSinks", "true"),
        "Delivers": {"Fn::Or": [{"Condition": "HasSinks"}, {"Condition": "HasHttpSinks"}]},
        "IsProtected": _equals("DeletionProtection", "true"),
        "IsRecoverable": _equals("PointInTimeRecovery", "true"),
        **{f"Has{one}": {"Fn::Not": [_equals(one, "0")]} for one in _CONCURRENCY},
        **{f"Not{one}": {"Fn::Not": [{"Condition": one}]} for one in variants.WITHOUT},
    }
    for signed in ("IsSigned", "NotIsSigned"):
        for kept in ("HasProfiles", "NotHasProfiles"):
            made[signed + kept] = {"Fn::And": [{"Condition": signed}, {"Condition": kept}]}
    used = text + json.dumps([one for name, one in made.items() if f'"{name}"' in text])
    return {name: one for name, one in made.items() if f'"{name}"' in used}


def _equals(name: str, value: str) -> Template:
    return {"Fn::Equals": [{"Ref": name}, value]}


def _parameter_groups() -> Template:
    groups = [{"Label": {"default": label}, "Parameters": list(names)} for label, names in _GROUPS]
    return {"AWS::CloudFormation::Interface": {"ParameterGroups": groups}}


def _differences(one: Any, other: Any, place: str = "") -> Iterator[str]:
    """The places in which two values differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in dict.fromkeys([*one, *other]):
            yield from _differences(one.get(key), other.get(key), f"{place}/{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (mine, theirs) in enumerate(zip(one, other, strict=True)):
            yield from _differences(mine, theirs, f"{place}/{number}")
    elif one != other:
        yield place
