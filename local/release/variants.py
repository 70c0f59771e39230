"""Packages one stage with different settings, and finds the meaning of the differences. Pure.

A release is made from what osls packages, not from a second template. In one packaging each setting has a value that is
used nowhere else, and is replaced by the parameter. A second packaging without a setting shows what that adds or leaves
out: where the two differ, a condition decides. Invariants: the stage's own name is such a value; two packagings with
different values give the same template, or `Clash` names the place.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

STAGE = "zzstage"
NO_VALUE = {"Ref": "AWS::NoValue"}
# How long functions and executions live.
TIMING = ("function_timeout_s", "wait_s", "margin_s", "start_allowance_s", "renew_after", "give_up_after")
# A setting of `sls deploy` itself, of which the template has nothing. Every other setting is a parameter.
FIXED = ("deploy_by_waves",)
# Values that occur nowhere else in a template. The second ones, slightly different, detect where that is not true.
_FIRST_VALUES: dict[str, Any] = {
    "function_timeout_s": 887, "wait_s": 743, "margin_s": 89, "start_allowance_s": 719, "renew_after": 131,
    "give_up_after": 157, "lease_every_s": 47, "progress_every_s": 821, "retry_max_delay_s": 3307,
    "throttle_delay_s": 283, "throttle_max_delay_s": 3313, "cool_down_s": 3319, "jitter_s": 727,
    "unconnected_after_s": 81401, "streams_per_function": 347, "connection_concurrency": 90001,
    "control_concurrency": 90007, "watch_concurrency": 90011, "memory_mb": 5003, "control_memory_mb": 5009,
    "watch_memory_mb": 5011, "delivery_memory_mb": 5021, "log_retention_days": 3288,
    "api_requests_per_s": 9001, "api_burst": 4999,
    "keep_days": 3607, "ledger_keep_days": 3613, "budget_events_per_day": 7700023, "budget_bytes_per_day": 7700029,
    "metrics_by": "stream", "log_level": "DEBUG",
    "machine_log_level": "FATAL", "api_auth": "iam", "api_access_log": True, "deletion_protection": True,
    "point_in_time_recovery": True, "alert_email": "zzmail@zz.example", "vpc_subnet_ids": "subnet-0aaaaaaa1",
    "vpc_security_group_ids": "sg-0bbbbbbb1", "permissions_boundary": "arn:aws:iam::111111111111:policy/zz",
    "profiles_bucket": "zz-profiles-zz", "profiles_folder": "zz-folder/",
    "profile_sinks": "http,arn:zz:sink", "upstreams": {},
}  # fmt: skip
_SECOND_VALUES: dict[str, Any] = {
    **{
        name: value - 4 for name, value in _FIRST_VALUES.items() if isinstance(value, int)
        and not isinstance(value, bool)
    },
    **{name: value.replace("zz", "yy") for name, value in _FIRST_VALUES.items() if isinstance(value, str)},
    "metrics_by": "profile", "log_level": "WARNING", "machine_log_level": "ALL", "log_retention_days": 2922,
    "vpc_subnet_ids": "subnet-0ccccccc1", "vpc_security_group_ids": "sg-0ddddddd1",
}  # fmt: skip
# Parameters with several values, separated by commas.
LISTS = ("VpcSubnetIds", "VpcSecurityGroupIds", "ProfileSinks")
# The settings with which the stage is packaged if a condition does not hold, by its name.
WITHOUT: dict[str, dict[str, Any]] = {
    "IsSigned": {"api_auth": "key"},
    "LogsMachines": {"machine_log_level": "OFF"},
    "LogsCalls": {"api_access_log": False},
    "HasEmail": {"alert_email": ""},
    "HasVpc": {"vpc_subnet_ids": "", "vpc_security_group_ids": ""},
    "HasBoundary": {"permissions_boundary": ""},
    "HasProfiles": {"profiles_bucket": "", "profiles_folder": ""},
    "Delivers": {"profile_sinks": ""},
    "HasSinks": {"profile_sinks": "http"},
    "HasHttpSinks": {"profile_sinks": "arn:zz:sink"},
    "IsProtected": {"deletion_protection": False},
    "IsRecoverable": {"point_in_time_recovery": False},
}


class Clash(ValueError):
    """Two packagings differ without a parameter that explains it; the message names the place."""


@dataclass(frozen=True)
class ParameterValue:
    """A setting's value in a packaging; `text` is its form within a text, `is_whole` if it must be the whole text."""

    parameter: str
    value: Any
    is_whole: bool = False

    @property
    def text(self) -> re.Pattern[str]:
        """Finds it in a text: a number must stand alone, another value may be part of a word."""
        if isinstance(self.value, int):
            return re.compile(rf"(?<![\w.]){self.value}(?![\w.])")
        return re.compile(re.escape(str(self.value)))


def parameter_name(setting: str) -> str:
    """The name of a setting's parameter: LeaseEveryS of lease_every_s."""
    if setting == "api_access_log":  # the name of a resource
        return "LogApiCalls"
    return "".join(word.capitalize() for word in setting.split("_"))


def variant_settings(stage: Mapping[str, Any], without: str = "", *, second: bool = False) -> dict[str, Any]:
    """The settings of a packaging: without one condition, or the first or second one with all."""
    own = {name: stage[name] for name in FIXED}
    return own | _FIRST_VALUES | (_SECOND_VALUES if second else {}) | WITHOUT.get(without, {})


def parameter_values(chosen: Mapping[str, Any]) -> list[ParameterValue]:
    """The values that stand for parameters in a packaging with these settings, the longest texts first."""
    found = [ParameterValue("Stage", STAGE)]
    for name, value in chosen.items():
        if name in FIXED or isinstance(value, bool | Mapping) or name == "api_auth":
            continue
        if name == "profile_sinks":
            value = value.removeprefix("http").strip(",")
        if value not in ("", "OFF"):
            is_word = name in ("metrics_by", "log_level", "machine_log_level")
            found.append(ParameterValue(parameter_name(name), value, is_whole=is_word))
    return sorted(found, key=lambda one: -len(str(one.value)))


def merge_by_condition(on: Any, off: Any, condition: str) -> Any:
    """`on` if the condition holds, `off` otherwise."""
    if on == off:
        return on
    if isinstance(on, dict) and isinstance(off, dict) and not (_is_function(on) or _is_function(off)):
        return {
            key: _merge_attribute(key, on.get(key, NO_VALUE), off.get(key, NO_VALUE), condition)
            for key in [*on, *(key for key in off if key not in on)]
        }
    if isinstance(on, list) and isinstance(off, list):
        if _is_subsequence(off, on):
            return [one if one in off else _if(condition, one, NO_VALUE) for one in on]
        if len(on) == len(off):
            return [merge_by_condition(one, other, condition) for one, other in zip(on, off, strict=True)]
    return _if(condition, on, off)


def _merge_attribute(key: str, on: Any, off: Any, condition: str) -> Any:
    # No condition is possible here; CloudFormation ignores a dependency on a resource that is not created.
    if key == "DependsOn":
        return list(dict.fromkeys(one for each in (on, off) if each != NO_VALUE for one in _as_list(each)))
    return merge_by_condition(on, off, condition)


def merge_resources(on: Mapping[str, Any], off: Mapping[str, Any], condition: str) -> dict[str, Any]:
    """The same for resources or outputs, by name: one that is only in one packaging gets the condition."""
    made = {name: merge_by_condition(on[name], off[name], condition) for name in on if name in off}
    made |= {name: one | {"Condition": condition} for name, one in on.items() if name not in off}
    return made | {name: one | {"Condition": f"Not{condition}"} for name, one in off.items() if name not in on}


def merge_variants(base: Any, several: Iterable[Any], place: str = "") -> Any:
    """Merges variants that differ from `base` in different places; raises Clash if two change the same place."""
    changed: list[Any] = []
    for one in several:
        if one != base and one not in changed:
            changed.append(one)
    if len(changed) < 2:
        return changed[0] if changed else base
    if all(isinstance(one, dict) for one in (base, *changed)):
        keys = dict.fromkeys(key for one in (base, *changed) for key in one)
        if "Fn::If" not in keys:
            return {
                key: merge_variants(base.get(key), [one.get(key) for one in changed], f"{place}/{key}") for key in keys
            }
    if all(isinstance(one, list) and len(one) == len(base) for one in changed):
        columns = zip(base, *changed, strict=True)
        return [merge_variants(first, rest, f"{place}/{number}") for number, (first, *rest) in enumerate(columns)]
    if place.endswith("/DependsOn"):
        return list(dict.fromkeys(one for each in (base, *changed) for one in _as_list(each or [])))
    raise Clash(f"two settings change {place}")


def insert_parameters(value: Any, several: list[ParameterValue], *, in_sub: bool = False) -> Any:
    """The value, with parameters instead of the values that stand for them."""
    if isinstance(value, dict):
        if "Fn::Sub" in value:
            return {"Fn::Sub": insert_parameters(value["Fn::Sub"], several, in_sub=True)}
        return {key: insert_parameters(one, several) for key, one in value.items()}
    if isinstance(value, list):
        texts, *more = value or [[]]
        if not more and not in_sub and (whole := _value_of_whole(texts, several)) and whole.parameter in LISTS:
            return {"Fn::Split": [",", {"Ref": whole.parameter}]}
        if in_sub:
            return [insert_parameters(texts, several, in_sub=True), *(insert_parameters(one, several) for one in more)]
        return [insert_parameters(one, several) for one in value]
    if isinstance(value, bool) or not isinstance(value, str | int):
        return value
    if not in_sub and (whole := _value_of_whole(value, several)):
        return {"Ref": whole.parameter}
    return value if isinstance(value, int) else _insert_into_text(value, several, in_sub=in_sub)


def _value_of_whole(value: Any, several: list[ParameterValue]) -> ParameterValue | None:
    return next((one for one in several if value in (one.value, str(one.value))), None)


def _insert_into_text(text: str, several: list[ParameterValue], *, in_sub: bool) -> Any:
    replaced = text if in_sub else text.replace("${", "${!")
    before = replaced
    for one in several:
        if not one.is_whole:
            replaced = one.text.sub("${" + one.parameter + "}", replaced)
    replaced = re.sub(r"arn:aws:(?=states:::)", "arn:${AWS::Partition}:", replaced)
    if in_sub:
        return replaced
    return {"Fn::Sub": replaced} if replaced != before else text


def _if(condition: str, on: Any, off: Any) -> dict[str, Any]:
    return {"Fn::If": [condition, on, off]}


def _is_function(value: Mapping[str, Any]) -> bool:
    return len(value) == 1 and next(iter(value)).startswith(("Fn::", "Ref"))


def _is_subsequence(few: list[Any], many: list[Any]) -> bool:
    rest = iter(many)
    return all(any(one == other for other in rest) for one in few)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
