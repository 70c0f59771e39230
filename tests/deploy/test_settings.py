"""osls and this machine make the same of the settings and of the machine files."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from local import stages
from local.service import osls
from local.user_error import UserError
from tests.statemachines.connections import definition

CHECK = """
const { checked } = require("./env/settings.cjs");
const tables = JSON.parse(require("fs").readFileSync(0, "utf8"));
const answer = (table) => { try { return checked(table, "here"); } catch (error) { return error.message; } };
console.log(JSON.stringify(tables.map(answer)));
"""
GOOD = {
    name: value
    for name, value in stages.load("local").items()
    if name not in ("claim_tries", "task_timeout_s", "overlap_max_s")
}
UPSTREAMS = {"UPSTREAM_ETCD": "https://etcd.example.org:2379"}
NO_UPSTREAMS = (
    "here: upstreams must be a table of variables, each UPSTREAM_... with an http or https address, or {} for none."
)
BAD: list[tuple[dict[str, Any], str]] = [
    ({"wait_s": 40}, "here: wait_s + margin_s must be less than function_timeout_s."),
    ({"wait_s": 35.5}, "here: wait_s must be a whole number from 1 to 900."),
    ({"wait_s": "35"}, "here: wait_s must be a whole number from 1 to 900."),
    ({"wait_s": True}, "here: wait_s must be a whole number from 1 to 900."),
    ({"wait_s": None}, "here: wait_s must be a whole number from 1 to 900."),
    ({"margin_s": 0}, "here: margin_s must be a whole number from 1 to 900."),
    ({"function_timeout_s": 901}, "here: function_timeout_s must be a whole number from 1 to 900."),
    ({"throttle_delay_s": 31}, "here: throttle_delay_s must not exceed throttle_max_delay_s."),
    ({"log_level": "LOUD"}, "here: log_level must be one of DEBUG, INFO, WARNING, ERROR."),
    ({"alert_email": "nobody"}, "here: alert_email must be an e-mail address, or '' for none."),
    ({"alert_email": "a b@c"}, "here: alert_email must be an e-mail address, or '' for none."),
    ({"alert_email": None}, "here: alert_email must be an e-mail address, or '' for none."),
    ({"unconnected_after_s": 0}, "here: unconnected_after_s must be a whole number from 1 to 86400."),
    ({"log_level": []}, "here: log_level must be one of DEBUG, INFO, WARNING, ERROR."),
    ({"jitter_s": 35}, "here: jitter_s must be less than wait_s."),
    ({"jitter_s": -1}, "here: jitter_s must be a whole number from 0 to 900."),
    ({"renew_after": 162}, "here: renew_after must be a whole number from 1 to 161."),
    ({"give_up_after": 149}, "here: give_up_after must be a whole number from 2 to 148."),
    ({"give_up_after": 115}, "here: renew_after must be less than give_up_after."),
    ({"upstreams": None}, NO_UPSTREAMS),
    ({"upstreams": []}, NO_UPSTREAMS),
    ({"upstreams": {"ETCD": "https://etcd.example.org"}}, NO_UPSTREAMS),
    ({"upstreams": {"UPSTREAM_ETCD": "etcd.example.org"}}, NO_UPSTREAMS),
    ({"upstreams": {"UPSTREAM_ETCD": 2379}}, NO_UPSTREAMS),
    ({"upstreams": {"UPSTREAM_ETCD": "https://{x}"}}, NO_UPSTREAMS),
    ({"upstreams": {"UPSTREAM_ETCD": "https://etcd\n"}}, NO_UPSTREAMS),
    ({"waits": 3}, "here: there is no setting waits."),
    ({"task_timeout_s": 60}, "here: there is no setting task_timeout_s."),
]


def in_python(table: dict[str, Any]) -> Any:
    """What local/stages.py makes of a table: the settings, or its sentence."""
    try:
        return stages.checked(table, "here")
    except UserError as error:
        return str(error)


def test_both_refuse_and_take_the_same_in_the_same_words() -> None:
    """env/settings.cjs and local/stages.py answer alike, for good tables, bad ones and each missing key."""
    good = GOOD | {"upstreams": UPSTREAMS}
    tables = [good, *(good | change for change, _ in BAD)]
    tables += [{key: value for key, value in good.items() if key != name} for name in good if name not in stages.TEXTS]
    run = subprocess.run(
        ["node", "-e", CHECK],
        input=json.dumps(tables),
        cwd=stages.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    answers = [in_python(table) for table in tables]
    assert json.loads(run.stdout) == answers
    assert answers[0] == {**GOOD, "claim_tries": 144, "task_timeout_s": 60, "overlap_max_s": 2}
    assert answers[1 : 1 + len(BAD)] == [sentence for _, sentence in BAD]


@pytest.mark.parametrize("stage", ["local", "test", "prod"])
def test_osls_resolves_what_this_machine_resolves(stage: str) -> None:
    """Settings, names and the machine of a stage are equal, whichever of the two resolved them."""
    command = ["node", "node_modules/osls/bin/serverless.js", "print", "--stage", stage, "--format", "json"]
    run = subprocess.run(command, cwd=stages.ROOT, capture_output=True, text=True, check=True)
    printed = json.loads(run.stdout[run.stdout.index("{") :])
    assert printed["custom"]["settings"] == stages.load(stage)
    assert printed["custom"]["names"] == stages.names(stage)
    assert printed["stepFunctions"]["stateMachines"]["connections"]["definition"] == definition("connections", stage)


def test_the_machine_that_is_deployed_is_the_file(template: dict[str, Any]) -> None:
    """The compiled template holds the definition as this machine resolves it, unchanged."""
    text = template["Resources"]["Connections"]["Properties"]["DefinitionString"]
    assert json.loads(text) == definition("connections", "dev")


def test_a_variable_that_cannot_be_resolved_is_named() -> None:
    """Only settings and names can stand in a machine file."""
    for text in ("${self:custom.settings.nope}", "a ${self:custom.names.nope}"):
        with pytest.raises(UserError, match=r"^There is no \$\{self:custom\.(settings|names)\.nope\}\.$"):
            stages.resolve({"Seconds": text}, stages.load("local"), stages.names("local"))
    with pytest.raises(UserError, match=r"^\$\{env:HOME\} cannot be resolved"):
        stages.resolve(["x ${env:HOME}"], stages.load("local"), stages.names("local"))


def test_osls_says_what_is_wrong_with_a_settings_file(tmp_path: Path) -> None:
    """`sls package` fails with the same sentence as this machine."""
    osls.snapshot(stages.ROOT, tmp_path)
    path = tmp_path / "env" / "local.yml"
    path.write_text(path.read_text().replace("wait_s: 35", "wait_s: 44"))
    sentence = "env/local.yml: wait_s + margin_s must be less than function_timeout_s."
    command = ["node", "node_modules/osls/bin/serverless.js", "package", "--stage", "local"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert sentence in run.stdout + run.stderr
    with pytest.raises(UserError) as refusal:
        osls.template("local", tmp_path)
    assert str(refusal.value) == sentence


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("[1, 2]", "env/local.yml must be a table of settings."),
        ("wait_s: [", "env/local.yml is not readable YAML: "),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, change: str, sentence: str) -> None:
    """What YAML cannot read, or reads as something else, is one sentence."""
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "local.yml").write_text(change)
    with pytest.raises(UserError) as refusal:
        stages.load("local", root=tmp_path)
    assert str(refusal.value).startswith(sentence)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("stage", ["nope", "../env/local", "", "Local"])
def test_a_stage_without_a_file_is_refused(stage: str) -> None:
    """A stage is the name of a file in env/."""
    with pytest.raises(UserError, match=r"^There is no stage"):
        stages.load(stage)


def test_settings_can_be_laid_over_a_stage() -> None:
    """Overrides replace the stage's own settings under the same rules, and the derived settings follow them."""
    assert stages.load("local", {"wait_s": 840, "function_timeout_s": 900})["task_timeout_s"] == 915
    with pytest.raises(UserError, match="with overrides: wait_s"):
        stages.load("local", {"wait_s": 45})
