"""osls and this machine resolve the settings and the machine files in the same way."""

import base64
import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local import stages
from local.service import osls
from local.template import ACCOUNT
from local.terminal import UserError
from tests.deploy import node
from tests.statemachines.connections import definition

# Answers {"table": ...} or {"text": ..., a file's in Base64} with the settings, and {"stage": ..., a name} with "".
CHECK = """
const { checkName, checked, read } = require("./env/settings.cjs");
const { stage, table, text } = given;
if (stage !== undefined) return checkName(stage) ?? "";
return (text === undefined ? checked(table, "here") : read(Buffer.from(text, "base64"), "here")).settings;
"""
SCHEMA = stages.read_schema()
NAMES = list(SCHEMA["properties"])
GOOD = {name: value for name, value in stages.load("local").items() if name not in stages.DERIVED}
UPSTREAMS = {"UPSTREAM_ETCD": "https://etcd.example.org:2379"}
MAIL = "alert_email must be an e-mail address, or '' for none"
VARIABLES = "upstreams must be a table of variables, each UPSTREAM_... with an address, or {} for none"
ADDRESS = "upstreams.UPSTREAM_ETCD must be an http, https, ws or wss address, in ASCII without spaces and braces"
LEVELS = "log_level must be one of DEBUG, INFO, WARNING, ERROR"
DAYS = (
    "log_retention_days must be one of 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192,"
    " 2557, 2922, 3288, 3653"
)
ALL = "env/README.md lists them all"
LIVES = "wait_s + margin_s + lease_every_s must be less than function_timeout_s"
WAIT = "wait_s must be a whole number from 1 to 900"
BAD: list[tuple[dict[str, Any], str]] = [
    ({"lease_every_s": 5}, f"{LIVES}, not 35 + 5 + 5 beside 45"),
    ({"wait_s": 35.5}, f"{WAIT}, not a fraction"),
    ({"wait_s": "35"}, f"{WAIT}, not '35'"),
    ({"wait_s": True}, f"{WAIT}, not true"),
    ({"wait_s": None}, f"{WAIT}, not empty"),
    ({"wait_s": [35]}, f"{WAIT}, not a list"),
    ({"wait_s": 10**16}, f"{WAIT}, not so large a number"),
    ({"function_timeout_s": 901}, "function_timeout_s must be a whole number from 1 to 900, not 901"),
    ({"throttle_delay_s": 31}, "throttle_delay_s must be at most throttle_max_delay_s, not 31 beside 30"),
    ({"log_level": "LOUD"}, f"{LEVELS}, not 'LOUD'"),
    ({"log_level": "LOUD\n"}, f"{LEVELS}, not another text"),
    ({"log_level": []}, f"{LEVELS}, not a list"),
    ({"log_retention_days": 2}, f"{DAYS}, not 2"),
    ({"alert_email": "nobody"}, f"{MAIL}, not 'nobody'"),
    ({"alert_email": "${env:WHO}@c"}, f"{MAIL}, not '${{env:WHO}}@c'"),
    ({"alert_email": None}, f"{MAIL}, not empty"),
    ({"jitter_s": 35}, "jitter_s must be less than wait_s, not 35 beside 35"),
    ({"jitter_s": -1}, "jitter_s must be a whole number from 0 to 900, not -1"),
    ({"give_up_after": 115}, "renew_after must be less than give_up_after, not 115 beside 115"),
    ({"connection_concurrency": 1}, "connection_concurrency must be 0, or a whole number from 2 to 100000, not 1"),
    ({"profiles_folder": "a/"}, "profiles_folder must be '' without a profiles_bucket, not 'a/'"),
    (
        {"profiles_folder": "a@b"},
        "profiles_folder must be a folder of the bucket that ends in a slash (streams/), or '' for the whole bucket,"
        " not 'a@b'",
    ),
    ({"upstreams": None}, f"{VARIABLES}, not empty"),
    ({"upstreams": []}, f"{VARIABLES}, not a list"),
    ({"upstreams": {"ETCD": "https://etcd.example.org"}}, f"{VARIABLES}, not a table"),
    ({"upstreams": {"UPSTREAM_ETCD": "etcd.example.org"}}, ADDRESS),
    ({"upstreams": {"UPSTREAM_ETCD": "https://{x}"}}, ADDRESS),
    ({"upstreams": {"UPSTREAM_ETCD": "https://etcd\n"}}, ADDRESS),
    ({"waits": 3}, f"there is no setting waits; {ALL}"),
    ({"wait\n": 3}, f"there is no setting of such a name; {ALL}"),
    ({"most_streams_per_function": 60}, f"there is no setting most_streams_per_function; {ALL}"),
]
# What YAML 1.1 or another reader takes for a number, a truth or a date, and what is none of it.
SCALARS = [
    "35", "+35", "35.0", "3.5e1", "035", "0x23", "0o43", "3_5", "0:35", ".5", "1e400", "-0", "- 35", "!!int 35", "'35'",
    "true", "True", "yes", "on", "~", "", "null", "NULL", ".inf", ".nan", "2026-01-31", "!!str 35", "!!set {35}",
    "!!timestamp 35", "!!bool maybe", "[35]", "{a: 35}", "{a: 1, a: 2}", "&a [35]", "*a", "|\n  35", "INFO", '"INFO"',
    "{UPSTREAM_X: 'https://x'}", "{1: x}", "&a 35", "&a 5", "35 # seconds", "35#", "@",
    "\t35", "35\n---\n", "35\n...\n", "\x85", "\ufeff",
]  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=50),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=4,
)


def in_node(**question: Any) -> Any:
    """Return env/settings.cjs's result for a table, a file's text or a name: the settings, or its sentence."""
    try:
        return node.run(CHECK, question)
    except node.Failed as error:
        return str(error)


def in_python(table: Any) -> Any:
    """Return local/stages.py's result for a table: the settings, or its sentence."""
    try:
        return stages.complete(table, "here")
    except UserError as error:
        return str(error)


@st.composite
def tables(draw: st.DrawFn) -> dict[str, Any]:
    """Draw tables of settings, most of them with a wrong value or one at a bound."""
    table: dict[str, Any] = GOOD | draw(st.sampled_from([{}, {"upstreams": {}}, {"upstreams": UPSTREAMS}]))
    for name in draw(st.lists(st.sampled_from(NAMES), max_size=3)):
        rules = SCHEMA["properties"][name]
        near = [rules[bound] + step for bound in ("minimum", "maximum") if bound in rules for step in (-1, 0, 0.0, 1)]
        right = [*rules.get("enum", []), *near] or ["a@b", "", {}, UPSTREAMS]
        table[name] = draw(st.sampled_from(right) | JSON)
    for name in draw(st.lists(st.sampled_from(NAMES), max_size=1)):
        table.pop(name, None)
    if draw(st.integers(0, 9)) == 0:
        table[draw(st.text(max_size=50))] = draw(JSON)
    if "upstreams" in table and draw(st.booleans()):
        names = st.from_regex(r"UPSTREAM_[A-Z0-9_]+", fullmatch=False) | st.text(max_size=20)
        addresses = st.from_regex(r"https?://[!-z]+", fullmatch=False) | JSON
        table["upstreams"] = draw(st.dictionaries(names, addresses, max_size=3))
    return table


# Of the settings that are joined: numbers near the bound, each of them right by itself.
JOINED = sorted({name for rule in SCHEMA["sums"] for name in (*rule["of"], rule.get("lessThan") or rule["atMost"])})
SUMS = st.dictionaries(st.sampled_from(JOINED), st.integers(2, 60) | st.integers(100, 148), max_size=4).map(
    lambda changes: GOOD | changes
)


@given(table=tables() | SUMS)
def test_both_accept_and_refuse_the_same_tables_in_the_same_words(table: dict[str, Any]) -> None:
    """For any table, env/settings.cjs and local/stages.py give the same answer, in one line."""
    answer = in_python(table)
    assert in_node(table=table) == answer
    assert not isinstance(answer, str) or re.fullmatch(r"here: [ -~…]+\.", answer)


@given(scalars=st.dictionaries(st.sampled_from(NAMES), st.sampled_from(SCALARS) | st.text(max_size=9), max_size=2))
def test_both_read_the_same_in_a_file(scalars: dict[str, str]) -> None:
    """Both read the same, or both refuse, values and keys about which YAML readers disagree."""
    good: dict[str, Any] = GOOD | {"upstreams": {}}
    lines = [f"{name}: {scalars.get(name, json.dumps(value))}\n" for name, value in good.items()]
    text = "".join(lines).encode("utf-8", "surrogatepass")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "env").mkdir()
        (Path(folder) / "env" / "here.yml").write_bytes(text)
        try:
            answer: Any = stages.load("here", root=Path(folder))
        except UserError as error:
            answer = str(error).replace("env/here.yml", "here")
    other = in_node(text=base64.b64encode(text).decode())
    assert other == answer or (isinstance(answer, str) and isinstance(other, str))


def test_the_sentence_names_the_setting_and_says_what_would_be_right() -> None:
    """Both give the same sentence for good and bad tables, and for tables that lack a setting."""
    good = GOOD | {"upstreams": UPSTREAMS}
    assert in_python(good) == {**GOOD, "most_streams_per_function": 40}
    assert in_python(GOOD | {"wait_s": 35.0}) == in_node(table=GOOD | {"wait_s": 35.0}) == in_python(good)
    for change, sentence in BAD:
        assert (in_python(good | change), in_node(table=good | change)) == (f"here: {sentence}.",) * 2
    for name in GOOD:
        fewer = {key: value for key, value in good.items() if key != name}
        assert re.fullmatch(rf"here: {name} is missing; it must be .+\.", in_python(fewer))
        assert in_node(table=fewer) == in_python(fewer)


def test_the_page_on_settings_has_the_bounds_of_the_schema() -> None:
    """env/README.md has a row for each setting, in the schema's order, with its bounds."""
    rows = re.findall(r"(?m)^\| `(\w+)` \| ([^|]+) \|", (stages.ROOT / "env" / "README.md").read_text())
    assert [name for name, _ in rows] == NAMES
    for name, bounds in rows:
        rules = SCHEMA["properties"][name]
        if "minimum" in rules:
            assert bounds == f"{rules['minimum']}–{rules['maximum']}"
        elif all(isinstance(one, str) for one in rules.get("enum", [1])):
            assert bounds == ", ".join(f"`{one}`" for one in rules["enum"])


@pytest.mark.parametrize(("packaging", "stage"), [("package", "dev"), ("china", "test")])
def test_osls_resolves_what_this_machine_resolves(request: pytest.FixtureRequest, packaging: str, stage: str) -> None:
    """Settings and names of a stage are equal in both; `china` has those of prod."""
    folder: Path = request.getfixturevalue(packaging)
    resolved = json.loads((folder / "serverless-state.json").read_text())["service"]["custom"]
    assert resolved["settings"] == stages.load(stage, root=folder.parent)
    assert resolved["names"] == stages.names(stage)


@pytest.mark.parametrize("stage", ["dev", "local", "test"])
def test_the_deployed_machine_equals_its_file(template: dict[str, Any], stage: str) -> None:
    """The compiled template holds the definition as this machine resolves it, unchanged."""
    compiled = template if stage == "dev" else osls.template(stage)
    text = compiled["Resources"]["Connections"]["Properties"]["DefinitionString"]
    assert json.loads(text) == definition("connections", stage)


def test_a_variable_that_cannot_be_resolved_is_named() -> None:
    """Only settings and names can be used in a machine file."""
    for text in ("${self:custom.settings.nope}", "a ${self:custom.names.nope}"):
        with pytest.raises(UserError, match=r"^\$\{self:custom\.(settings|names)\.nope\} cannot be resolved: there"):
            stages.resolve({"Seconds": text}, stages.load("local"), stages.names("local"))
    with pytest.raises(UserError, match=r"^\$\{env:HOME\} cannot be resolved"):
        stages.resolve(["x ${env:HOME}"], stages.load("local"), stages.names("local"))


def test_osls_says_what_is_wrong_with_a_settings_file(tmp_path: Path) -> None:
    """`sls package` fails with the same sentence as this machine."""
    osls.copy_sources(stages.ROOT, tmp_path)
    path = tmp_path / "env" / "local.yml"
    path.write_text(path.read_text().replace("wait_s: 35", "wait_s: 44"))
    sentence = f"env/local.yml: {LIVES}, not 44 + 5 + 1 beside 45."
    command = ["node", *osls.COMMAND, "package", "--stage", "local"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert sentence in run.stdout + run.stderr
    with pytest.raises(UserError) as refusal:
        osls.template("local", tmp_path)
    assert str(refusal.value) == sentence


@pytest.mark.parametrize(
    ("change", "sentence"),
    [("[1, 2]", "env/local.yml must be a table of settings."), ("wait_s: [", "env/local.yml is not readable YAML: ")],
)
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, change: str, sentence: str) -> None:
    """One sentence says that YAML cannot read it, or that it is something else."""
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "local.yml").write_text(change)
    with pytest.raises(UserError) as refusal:
        stages.load("local", root=tmp_path)
    assert str(refusal.value).startswith(sentence)
    assert "\n" not in str(refusal.value)


STAGE_NAMES = st.text(st.sampled_from("abz09-_.A/é\n$ "), max_size=17) | st.from_regex(
    r"[a-z][a-z0-9-]{13,16}", fullmatch=True
)


@given(STAGE_NAMES)
def test_a_name_that_no_stage_can_have_is_refused_in_the_same_words(name: str) -> None:
    """This holds even if the file exists: 16 characters make a bucket's name of 64, which S3 refuses."""
    said = ""
    try:
        stages.check_name(name)
    except UserError as refusal:
        said = str(refusal)
    assert in_node(stage=name) == said
    bucket = f"{stages.SERVICE}-{name}-events-{ACCOUNT}-ap-southeast-1"
    assert (said == "") == (re.fullmatch("[a-z][a-z0-9-]*", name) is not None and len(bucket) <= 63)


def test_settings_can_override_those_of_a_stage() -> None:
    """Overrides follow the same rules, and derived settings follow the overrides."""
    assert stages.load("local", {"wait_s": 840, "function_timeout_s": 900})["most_streams_per_function"] == 488
    with pytest.raises(UserError, match="with overrides: wait_s"):
        stages.load("local", {"wait_s": 45})
