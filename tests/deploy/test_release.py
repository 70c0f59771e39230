"""A release has the same bytes in any folder, and the resources that `sls deploy` makes for the same settings."""

import hashlib
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local import stages
from local.release import __main__ as builder
from local.release import variants
from local.release.release_template import BOUNDS, DEPLOYMENT, handover_rules, setting_rules, without_tool_parts
from local.service import osls
from local.template import Resources, text_of
from tests.deploy.account import opened
from tests.local.support import until

LIVES = ("function_timeout_s", "wait_s", "margin_s")
NUMBER = builder.read_version(stages.ROOT)
TEMPLATE = f"streamkeeper-{NUMBER}.template.json"
VALUES = st.recursive(
    st.integers(0, 3) | st.sampled_from(["a", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


def chosen(value: Any, *, holds: bool) -> Any:
    """Return what Fn::If chooses, without properties that have no value."""
    if isinstance(value, list):
        return [one for one in (chosen(one, holds=holds) for one in value) if one != variants.NO_VALUE]
    if not isinstance(value, dict):
        return value
    if "Fn::If" in value:
        return chosen(value["Fn::If"][1 if holds else 2], holds=holds)
    several = {key: chosen(one, holds=holds) for key, one in value.items()}
    return (
        {key: one for key, one in several.items() if one != variants.NO_VALUE} if value != variants.NO_VALUE else value
    )


@given(VALUES, VALUES)
def test_a_condition_gives_each_of_two_packagings(on: Any, off: Any) -> None:
    """If the condition holds it gives the first packaging, otherwise the second, whatever they contain."""
    made = variants.merge_by_condition(on, off, "C")
    assert (chosen(made, holds=True), chosen(made, holds=False)) == (on, off)


def test_settings_that_change_one_place_are_refused() -> None:
    """Settings that change different places are joined."""
    base, one, other = {"a": [1, 2], "b": {"c": 1}}, {"a": [1, 2], "b": {"c": 7}}, {"a": [{"x": 1}, 2], "b": {"c": 1}}
    assert variants.merge_variants(base, [one, other, base]) == {"a": [{"x": 1}, 2], "b": {"c": 7}}
    with pytest.raises(variants.Clash, match="two settings change /b/c"):
        variants.merge_variants(base, [one, {"a": [1, 2], "b": {"c": 8}}])


def test_a_parameter_replaces_exactly_its_value() -> None:
    """A value alone becomes a reference, a value in a text Fn::Sub. A number that only contains its digits stays."""
    known = variants.parameter_values(
        {"lease_every_s": 811, "vpc_subnet_ids": "subnet-0aaaaaaa1", "log_level": "DEBUG"}
    )
    several = {"n": 811, "t": "811", "in": "{% 811 + 8110 %} ${x}", "list": ["subnet-0aaaaaaa1"], "word": "DEBUG"}
    assert variants.insert_parameters({**several, "not": "DEBUGGER", "sub": {"Fn::Sub": "${A}-zzstage-b"}}, known) == {
        "n": {"Ref": "LeaseEveryS"},
        "t": {"Ref": "LeaseEveryS"},
        "in": {"Fn::Sub": "{% ${LeaseEveryS} + 8110 %} ${!x}"},
        "list": {"Fn::Split": [",", {"Ref": "VpcSubnetIds"}]},
        "word": {"Ref": "LogLevel"},
        "not": "DEBUGGER",
        "sub": {"Fn::Sub": "${A}-${Stage}-b"},
    }


def test_each_setting_is_a_parameter_or_named_as_fixed() -> None:
    """A new setting fails here until it is either. Parameters keep the rules of settings."""
    known = json.loads((stages.ROOT / "env" / "settings.schema.json").read_text())["properties"]
    for is_second in (False, True):
        chosen_settings = variants.variant_settings(stages.load("prod"), second=is_second)
        assert set(chosen_settings) == set(known)
        stages.complete(chosen_settings, "a packaging")


def holds(check: Any, chosen: dict[str, str]) -> bool:
    """Return whether CloudFormation's assertion is true for these parameters."""
    ((name, argument),) = check.items()
    match name:
        case "Fn::Not":
            return not holds(argument[0], chosen)
        case "Fn::Or":
            return any(holds(one, chosen) for one in argument)
        case "Fn::Equals":
            return bool(chosen[argument[0]["Ref"]] == argument[1])
    assert name == "Fn::Contains"
    return chosen[argument[1]["Ref"]] in argument[0]


def sentences(rules: Iterable[Any], chosen: dict[str, str]) -> list[str]:
    """Return CloudFormation's sentences about the rules that these parameters break."""
    met = [rule for rule in rules if "RuleCondition" not in rule or holds(rule["RuleCondition"], chosen)]
    asserted = [one for rule in met for one in rule["Assertions"]]
    return [one["AssertDescription"] for one in asserted if not holds(one["Assert"], chosen)]


def test_a_release_refuses_what_helps_nobody() -> None:
    """One function, in which two lanes cannot overlap, as a stage does; and sinks of profiles that are nowhere."""
    chosen = {"ConnectionConcurrency": "1", "ProfilesBucket": "", "ProfilesFolder": "", "ProfileSinks": "arn:a"}
    rules = setting_rules(stages.read_schema()).values()
    assert sentences(rules, chosen | {"HttpSinks": "false"}) == [
        "ConnectionConcurrency must be 0, or a whole number from 2 to 100000.",
        "ProfileSinks is for the profiles of a bucket: set ProfilesBucket, or leave it out.",
    ]
    assert sentences(rules, {"ConnectionConcurrency": "2", "ProfilesBucket": "mine"}) == []


def test_a_release_accepts_only_lives_with_time_for_a_handover() -> None:
    """Each accepted life suits a stage too, and leaves time for the most streams of a function."""
    prod, rules, taken = stages.load("prod"), handover_rules().values(), 0
    own = {name: value for name, value in prod.items() if name not in stages.DERIVED}
    for limit_s, wait_s, margin_s in product(*(BOUNDS[name]["enum"] for name in LIVES)):
        chosen = {"FunctionTimeoutS": str(limit_s), "WaitS": str(wait_s), "MarginS": str(margin_s)}
        broken = sentences(rules, chosen)
        assert (broken == []) == (limit_s - wait_s - margin_s >= 40)
        if not broken and not wait_s % 50:
            settings = stages.complete(own | dict(zip(LIVES, (limit_s, wait_s, margin_s), strict=True)), "a stack")
            assert int(settings["most_streams_per_function"]) >= BOUNDS["streams_per_function"]["maximum"]
            taken += 1
    assert taken > 100
    assert 900 - sum(int(prod[name]) for name in LIVES[1:]) == 40 > BOUNDS["lease_every_s"]["maximum"]


def test_the_bounds_of_parameters_ensure_every_other_rule() -> None:
    """This holds for each rule of a stage except that of the handover."""
    schema = json.loads((stages.ROOT / "env" / "settings.schema.json").read_text())
    bounds = {name: rules | BOUNDS.get(name, {}) for name, rules in schema["properties"].items()}
    for rule in schema["sums"]:
        if rule["of"][:2] != ["wait_s", "margin_s"]:
            least = bounds[rule.get("lessThan") or rule["atMost"]]
            (most,) = (bounds[name]["maximum"] for name in rule["of"])
            assert most < min(least.get("enum", [least["minimum"]])) + ("atMost" in rule)


def test_the_version_is_one() -> None:
    """osls and npm read the same version as in pyproject.toml; the changelog has its section."""
    for name in ("package.json", "package-lock.json"):
        assert json.loads((stages.ROOT / name).read_text())["version"] == NUMBER
    assert builder.changelog_section(stages.ROOT, NUMBER).startswith(f"## {NUMBER}")


def test_a_folder_holds_nothing_but_the_release(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Earlier releases are removed. A folder with anything else stays unchanged, and is refused at once."""
    earlier = {"streamkeeper-0.0.9.zip", "streamkeeper-0.0.9.template.json", "SHA256SUMS", "CHANGES.md"}
    for other in ("notes.txt", ".git"):
        for name in {*earlier, other}:
            (tmp_path / name).touch()
        assert builder.main([str(tmp_path)]) == 2
        assert capsys.readouterr().err.startswith(f"{tmp_path} holds {other!r}, which is no file of a release")
        assert {path.name for path in tmp_path.iterdir()} == {*earlier, other}
        (tmp_path / other).unlink()
    assert [*builder.empty_release_folder(tmp_path).iterdir()] == []
    assert builder.main([str(Path(__file__))]) == 2
    assert capsys.readouterr().err == f"{__file__} cannot hold a release: File exists.\n"


@pytest.fixture
def template(release: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((release / TEMPLATE).read_text())
    return found


@pytest.mark.long
@pytest.mark.cpu(150)
def test_the_same_project_makes_the_same_bytes(release: Path, tmp_path: Path) -> None:
    """This holds in another folder, at another time and under another umask. The checksums are those of the files."""
    for name in ("streamkeeper-0.0.9.zip", "CHANGES.md"):  # of an earlier release
        (tmp_path / name).write_text("old")
    former = os.umask(0o077)
    try:
        builder.make_release(stages.ROOT, tmp_path)
    finally:
        os.umask(former)
    names = {f"streamkeeper-{NUMBER}.zip", TEMPLATE, "CHANGES.md", "SHA256SUMS"}
    assert {path.name for folder in (release, tmp_path) for path in folder.iterdir()} == names
    for name in names:
        assert (release / name).read_bytes() == (tmp_path / name).read_bytes(), name
    sums = dict(line.split()[::-1] for line in (release / "SHA256SUMS").read_text().splitlines())
    assert sums == {name: hashlib.sha256((release / name).read_bytes()).hexdigest() for name in names - {"SHA256SUMS"}}
    with zipfile.ZipFile(release / f"streamkeeper-{NUMBER}.zip") as archive:
        files = archive.namelist()
    assert {"handlers/connection_manager.py", "env/streams/wikimedia.toml", "urllib3/__init__.py"} <= set(files)


@pytest.mark.long
@pytest.mark.cpu(30)
def test_aws_takes_the_template(release: Path, template: dict[str, Any]) -> None:
    """cfn-lint only reports that no VPC is the default (W1033); the size is within S3's limit."""
    assert (release / TEMPLATE).stat().st_size < 1_000_000
    assert len(template["Parameters"]) <= 200
    assert len(template["Resources"]) <= 500
    assert template["Outputs"]["Version"]["Value"] == NUMBER == template["Metadata"]["Streamkeeper"]["Version"]
    command = [str(Path(sys.executable).with_name("cfn-lint")), "--ignore-checks", "W3005", "W1033", "--"]
    run = subprocess.run([*command, str(release / TEMPLATE)], capture_output=True, text=True, check=False)
    assert (run.stdout + run.stderr, run.returncode) == ("", 0)


@pytest.mark.long
@pytest.mark.cpu(40)
def test_cloudformation_makes_a_stack_of_a_release(release: Path, tmp_path: Path) -> None:
    """An emulator makes it from the zip and the template in a bucket, with a profile's bucket and sinks."""
    with opened(tmp_path) as account:
        s3, stacks = account.client("s3"), account.client("cloudformation")
        s3.create_bucket(Bucket="code")
        for path in release.glob("streamkeeper-*"):
            s3.upload_file(str(path), "code", path.name)
        said = {"CodeBucket": "code", "ProfilesBucket": "code", "HttpSinks": "true", "KeepDays": "7"}
        given = [{"ParameterKey": name, "ParameterValue": value} for name, value in said.items()]
        url = f"{account.url}/code/{TEMPLATE}"
        stacks.create_stack(StackName="own", TemplateURL=url, Parameters=given, Capabilities=["CAPABILITY_IAM"])
        assert until(lambda: not account.status("own").endswith("IN_PROGRESS"), 120)
        assert account.status("own") == "CREATE_COMPLETE"
        (stack,) = stacks.describe_stacks(StackName="own")["Stacks"]
        assert {"OutputKey": "Version", "OutputValue": NUMBER}.items() <= stack["Outputs"][-1].items()
        function = account.client("lambda").get_function_configuration(
            FunctionName="streamkeeper-prod-connection-manager"
        )["Environment"]["Variables"]
        assert (function["PROFILES_BUCKET"], function["KEEP_DAYS"]) == ("code", "7")
        assert {"DeliveryTable", "WrongProfilesAlarm"} <= set(account.resources("own"))


# What a stage of one's own would say; none of it is what the release was made with.
ALL = {
    "function_timeout_s": 600, "wait_s": 500, "margin_s": 30, "start_allowance_s": 45, "renew_after": 20,
    "give_up_after": 140, "jitter_s": 5, "lease_every_s": 3, "streams_per_function": 50,
    "connection_concurrency": 200, "control_concurrency": 7,
    "memory_mb": 256, "machine_log_level": "ERROR", "api_access_log": True, "api_auth": "iam", "log_level": "ERROR",
    "alert_email": "ops@example.org", "vpc_subnet_ids": "subnet-01234567,subnet-89abcdef", "metrics_by": "stage",
    "vpc_security_group_ids": "sg-01234567", "profiles_bucket": "my-profiles", "profiles_folder": "streams/",
    "profile_sinks": "arn:aws:sqs:us-east-1:000000000000:a,http,arn:aws:s3:::lake/raw/*",
    "deletion_protection": True, "point_in_time_recovery": True, "log_retention_days": 7,
}  # fmt: skip
NONE = {
    "api_auth": "key", "machine_log_level": "OFF", "api_access_log": False, "deletion_protection": False,
    "control_concurrency": 0, "watch_concurrency": 0,
}  # fmt: skip


@pytest.mark.long
@pytest.mark.cpu(30)
@pytest.mark.parametrize("own", [ALL, NONE, {}], ids=["all", "none", "prod"])
def test_a_release_makes_what_sls_deploys(template: dict[str, Any], tmp_path: Path, own: dict[str, Any]) -> None:
    """The resources agree one by one, for the same settings.

    Three differences are intended. The deploy tool's own bucket and the exports of outputs have no use. The code is
    where the parameters say. The API's deployment is named by its content instead of an instant, so that an unchanged
    API is not deployed again.
    """
    table = stages.load("prod") | own
    settings = {name: value for name, value in table.items() if name not in stages.DERIVED}
    osls.copy_sources(stages.ROOT, tmp_path)
    compiled = without_tool_parts(builder.package_template(tmp_path, settings, "mine"))
    code = {"CodeBucket": "code", "CodeKey": "zip", "Stage": "mine"}
    sinks = str(settings["profile_sinks"]).split(",")
    said = code | {variants.parameter_name(name): value for name, value in settings.items()}
    said |= {"HttpSinks": "http" in sinks, "ProfileSinks": ",".join(one for one in sinks if one != "http")}
    deployed = compiled | {"Parameters": {name: {"Default": value} for name, value in code.items()}}
    released = template | {
        "Parameters": {name: {"Default": text_of(said.get(name, ""))} for name in template["Parameters"]}
    }
    theirs, mine = resources(deployed), resources(released)
    assert set(mine) == set(theirs)
    for name, one in theirs.items():
        assert mine[name] == one, name
    assert outputs(released) == outputs(deployed)


# What an attribute of a resource is in its own words, or decides nothing about it.
TOP = ("Properties", "Condition", "DependsOn")


def resources(template: dict[str, Any]) -> dict[str, Any]:
    """Return the resources as CloudFormation would make them, by name; numbers and booleans as texts."""
    known = Resources(template, {})
    kinds = {one["Type"] for one in template["Resources"].values()}
    names = [name for kind in sorted(kinds) for name in known.ids_of_type(kind)]
    return {
        re.sub(rf"{DEPLOYMENT}\w*", DEPLOYMENT, name): {
            **{key: value for key, value in known.raw(name).items() if key not in TOP},
            "Properties": as_texts(known.properties(name)),
        }
        for name in names
    }


def outputs(template: dict[str, Any]) -> dict[str, Any]:
    known = Resources(template, {})
    return {name: known.resolve(one["Value"], name) for name, one in template["Outputs"].items()}


def as_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: as_texts(one) for key, one in value.items()}
    if isinstance(value, list):
        return [as_texts(one) for one in value]
    return re.sub(rf"{DEPLOYMENT}\w*", DEPLOYMENT, text_of(value))
