"""The content of the zip that Lambda gets, and that it passes its tests with the runtime's Python."""

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from local.service import osls
from local.stages import ROOT
from tests.deploy import node
from tests.deploy.account import copied
from tests.local.support import environment

# importlib's magic number of CPython 3.13, and the flags of a hash-based file that is never checked (PEP 552).
MAGIC = struct.pack("<H", 3571) + b"\r\n"
UNCHECKED_HASH = struct.pack("<I", 0b01)
FINISH = """
process.env.STREAMKEEPER_TEMPLATE_ONLY = '1';
const service = { package: { artifact: given }, custom: { upstreams: {} } };
const plugin = new (require('./packaging/compile-pyc.cjs'))({ service, serviceDir: '.' });
return plugin.hooks['after:package:createDeploymentArtifacts']().finally(() => {
  delete process.env.STREAMKEEPER_TEMPLATE_ONLY;
});
"""


def test_the_zip_holds_the_handlers_and_the_profiles(archive: dict[str, bytes]) -> None:
    """Nothing of local, timeline, tests or settings ships."""
    assert {name.split("/")[0] for name in archive} == {"handlers", "env"}
    assert {name for name in archive if re.match(r"env/(?!streams/)", name)} == {"env/upstreams.json"}


@pytest.mark.long
def test_the_zip_holds_the_requirements(whole_archive: dict[str, bytes]) -> None:
    """It holds nothing else besides handlers and profiles; boto3 comes with the runtime."""
    tops = {name.split("/")[0] for name in whole_archive if ".dist-info/" not in name}
    installed = {"aws_lambda_powertools", "jmespath", "typing_extensions.py", "urllib3"}
    assert tops == {"handlers", "env", "__pycache__"} | installed
    assert [name for name in whole_archive if "boto" in name.split("/")[0]] == []


@pytest.mark.long
def test_only_the_imported_parts_of_powertools_ship(whole_package: Path, whole_archive: dict[str, bytes]) -> None:
    """Its event handler and other utilities stay out, and the functions' imports work from the zip."""
    package, archive = whole_package, whole_archive
    folders = {name.split("/")[2] for name in archive if name.startswith("aws_lambda_powertools/utilities/")}
    assert folders == {"__init__.py", "__pycache__", "jmespath_utils", "parameters", "serialization.py", "typing"}
    assert [name for name in archive if "event_handler" in name] == []
    sources = "".join(source.decode() for name, source in archive.items() if re.fullmatch(r"handlers/.+\.py", name))
    imports = sorted(set(re.findall(r"(?m)^ *(from aws_lambda_powertools\S* import .+)$", sources)))
    assert len(imports) >= 4
    script = "\n".join(["import sys", f"sys.path.insert(0, {str(package / 'streamkeeper.zip')!r})", *imports])
    uses = "parameters.SSMProvider, parameters.SecretsProvider, Logger(), Metrics(namespace='n', service='s')"
    subprocess.run([sys.executable, "-c", f"{script}\n{uses}"], check=True, timeout=60)


def test_the_addresses_of_the_stage_ship_beside_its_profiles(archive: dict[str, bytes]) -> None:
    """The functions read them there; as variables they would be limited to 4 KB."""
    assert json.loads(archive["env/upstreams.json"]) == {"UPSTREAM_ETCD": "https://etcd.example.org:2379"}


def test_every_handler_ships_unchanged(archive: dict[str, bytes]) -> None:
    """The sources in the zip are the project's, byte for byte."""
    ours = {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in (ROOT / "handlers").rglob("*.py")}
    assert {name: archive.get(name) for name in ours} == ours


def test_a_profile_ships_only_if_its_variable_is_set(archive: dict[str, bytes], template: dict[str, Any]) -> None:
    """Otherwise it stays out of the zip, and API Gateway does not know it."""
    profiles = {path.stem: path.read_bytes() for path in (ROOT / "env" / "streams").glob("*.toml")}
    address = re.compile(rb'^address = "\$\{(UPSTREAM_[A-Z]+)\}', re.MULTILINE)
    needs = {name: match[1] for name, text in profiles.items() if (match := address.search(text))}
    assert {"demo", "etcd", "couchdb"} <= set(needs)
    expected = {name: text for name, text in profiles.items() if needs.get(name, b"UPSTREAM_ETCD") == b"UPSTREAM_ETCD"}
    shipped = {path.stem: archive[str(path)] for path in map(Path, archive) if path.suffix == ".toml"}
    assert shipped == expected
    integration = template["Resources"]["ApiGatewayMethodConnectionsStreamidVarPost"]["Properties"]["Integration"]
    text, _ = integration["RequestTemplates"]["application/json"]["Fn::Sub"]
    assert f"#set($known = '{'|'.join(sorted(expected))}')" in text


def with_plugin(folder: Path) -> Path:
    """Return the folder of profiles of a project that has the plugin."""
    (folder / "packaging").mkdir()
    for name in ("plugin.cjs", "shipped-profiles.cjs", "never-deployed.cjs"):
        shutil.copy(ROOT / "packaging" / name, folder / "packaging")
    (folder / "node_modules").symlink_to(ROOT / "node_modules")
    streams = folder / "env" / "streams"
    streams.mkdir(parents=True)
    return streams


def asked(folder: Path, expression: str) -> Any:
    """Return the value of an expression of the plugin's functions, in the project of a folder."""
    return node.run(f"const plugin = require('./packaging/shipped-profiles.cjs'); return {expression}", folder=folder)


UPSTREAMS = '{ UPSTREAM_Q: "https://example.org" }'


def test_an_address_may_be_written_in_any_way_of_toml(tmp_path: Path) -> None:
    """The plugin finds its variable. A variable in a comment, before or after a value, does not count."""
    streams = with_plugin(tmp_path)
    ways = {
        "escaped": '"addr\\u0065ss" = "\\u0024{UPSTREAM_Q}/a"',
        "indented": '  address = "${UPSTREAM_Q}/a"',
        "literal": "address='${UPSTREAM_Q}/a'",
        "long": 'address = """\n${UPSTREAM_Q}/a"""',
        "quoted": '"address" = "${UPSTREAM_Q}/a"',
    }
    for name, line in ways.items():
        (streams / f"{name}.toml").write_text(f"{line}\n")
        assert tomllib.loads(f"{line}\n") == {"address": "${UPSTREAM_Q}/a"}
    comments = '  # address = "${UPSTREAM_Q}/a"\naddress = "https://example.org"  # not ${UPSTREAM_Q}\n'
    (streams / "without.toml").write_text(comments)
    assert asked(tmp_path, f"[{{}}, {UPSTREAMS}].map((upstreams) => plugin.choose('prod', upstreams))") == [
        {"shipped": ["without"], "left": [[name, "UPSTREAM_Q"] for name in ways]},
        {"shipped": [*ways, "without"], "left": []},
    ]


def test_a_profile_with_a_variable_that_no_stage_sets_is_not_packaged(tmp_path: Path) -> None:
    """No stage could set it, so the profile would ship and be rejected at its first connection."""
    streams = with_plugin(tmp_path)
    ways = {
        "own": ("${UPSTREAM_Q}/a?t=${secret:t}&u=${ssm:/streamkeeper/prod/u}&path=$.a{name}", None),
        "other": ("${FOO}/a", "${FOO}"),
        "second": ("${UPSTREAM_Q}/${UPSTREAM_R}", "${UPSTREAM_R}"),
        "small": ("${upstream_q}/a", "${upstream_q}"),
        "inherited": ("${constructor}/a", "${constructor}"),
        "long": ("https://example.org/${Bearer not-to-be-quoted}", "another ${...}"),
        "unclosed": ("https://example.org/${", "another ${...}"),
    }
    for name, (address, _) in ways.items():
        (streams / f"{name}.toml").write_text(f"# ${{NO}}\naddress = '{address}'\n")
    said = asked(tmp_path, f"{list(ways)}.map((name) => plugin.strayVariable(name, {UPSTREAMS}))")
    for (name, (_, what)), sentence in zip(ways.items(), said, strict=True):
        begins = None if what is None else f"env/streams/{name}.toml holds {what}, which no stage sets: "
        assert (sentence and sentence[: len(begins or "")]) == begins


REFUSED = "but the stage prod can read names under /streamkeeper/prod/ alone: write "


def test_a_profile_with_a_secret_of_another_stage_is_not_packaged(tmp_path: Path) -> None:
    """One sentence names profile, secret and fix. Comments and the stage's own secrets do not matter."""
    streams = with_plugin(tmp_path)
    (tmp_path / "env" / "dev.yml").touch()
    own = "# ${secret:/streamkeeper/dev/x}\nZ = 1  # ${ssm:/streamkeeper/dev/x}\n"
    own += 'A = "${secret:a:b} ${ssm:a/b}"\nB = "${ssm:/streamkeeper/prod/a}"\n'
    (streams / "own.toml").write_text(own)
    assert asked(tmp_path, "plugin.foreignSecret('own', 'prod')") is None
    for whole, short in (("/streamkeeper/dev/a", "a"), ("/streamkeeper/a", "a"), ("/x/a", "x/a")):
        (streams / "other.toml").write_text(f'{own}C = "Bearer ${{secret:{whole}:b}}"\n')
        write = f"{REFUSED}${{secret:{short}}}, which is /streamkeeper/prod/{short}."
        sentence = f"env/streams/other.toml refers to {whole}, {write}"
        assert asked(tmp_path, "plugin.foreignSecret('other', 'prod')") == sentence


def test_a_profile_that_is_not_toml_is_not_packaged(tmp_path: Path) -> None:
    """One sentence says where the mistake is, and quotes nothing. On a laptop the run itself reports it."""
    streams = with_plugin(tmp_path)
    (streams / "broken.toml").write_text('address = "https://example.org"\ntoken = "secret\n')
    with pytest.raises(node.Failed, match=r"^env/streams/broken.toml is not valid TOML: see line 2\.$"):
        asked(tmp_path, "plugin.choose('prod', {})")
    assert asked(tmp_path, "plugin.choose('local', {})")["shipped"] == ["broken"]


@pytest.mark.long
def test_sls_ends_with_the_sentence_about_a_profile(tmp_path: Path) -> None:
    """`sls package` of a stage with such a profile makes nothing."""
    folder = copied(tmp_path / "project")
    (folder / "env" / "streams" / "x-filtered.toml").write_text('A = "${FOO}/x"\n')
    command = ["node", *osls.COMMAND, "package"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    refused = "env/streams/x-filtered.toml holds ${FOO}, which no stage sets: "
    assert (run.returncode, refused in run.stdout + run.stderr) == (1, True), run.stdout + run.stderr
    assert not (folder / ".serverless" / "streamkeeper.zip").exists()


def test_a_umask_changes_nothing_in_the_zip(tmp_path: Path) -> None:
    """pip leaves files that only their owner can read, and Lambda runs the functions as another user."""
    artifact, made = tmp_path / "streamkeeper.zip", []
    for mode in (0o600, 0o664):
        with zipfile.ZipFile(artifact, "w") as file:
            info = zipfile.ZipInfo("urllib3/__init__.py")
            info.external_attr = (0o100000 | mode) << 16
            file.writestr(info, "")
        node.run(FINISH, str(artifact))
        with zipfile.ZipFile(artifact) as file:
            assert {one.external_attr >> 16 for one in file.infolist()} == {0o100644}
        made.append(artifact.read_bytes())
    assert made[0] == made[1]


@pytest.mark.long
def test_every_source_has_its_compiled_file(whole_archive: dict[str, bytes]) -> None:
    """Each x.py has __pycache__/x.cpython-313.pyc of the runtime, never checked; no compiled file lacks its source."""
    headers = {name: content[:8] for name, content in whole_archive.items() if name.endswith(".pyc")}
    sources = (name for name in whole_archive if name.endswith(".py"))
    compiled = (re.sub(r"([^/]+)\.py$", r"__pycache__/\1.cpython-313.pyc", name) for name in sources)
    assert headers == dict.fromkeys(compiled, MAGIC + UNCHECKED_HASH)


def test_one_python_version_is_named_everywhere() -> None:
    """Runtime, wheels and compiled files are of one version of Python, on one architecture."""
    wiring = (ROOT / "serverless.yml").read_text()
    compiler = (ROOT / "packaging" / "compile-pyc.cjs").read_text()
    assert re.findall(r"runtime: python(\S+)", wiring) == re.findall(r"--python-version=(\S+)", wiring) == ["3.13"]
    assert re.findall(r"TAG = '(\S+)'", compiler) == ["cpython-313"]
    assert ("architecture: arm64" in wiring, "manylinux2014_aarch64" in wiring) == (True, True)


def test_the_locks_are_complete_and_name_no_registry() -> None:
    """Every package is pinned with a hash, and none says where it comes from."""
    lock = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    assert [name for name, entry in lock.items() if "resolved" in entry] == []
    assert [
        name for name, entry in lock.items() if name and "integrity" not in entry and not entry.get("inBundle")
    ] == []
    wanted = json.loads((ROOT / "package.json").read_text())["devDependencies"]
    assert {name: lock[f"node_modules/{name}"]["version"] for name in wanted} == wanted
    for requirements in ("requirements.txt", *(f"requirements-{name}.txt" for name in ("dev", "durable", "velocity"))):
        text = re.sub(r"(?m)^#.*\n", "", (ROOT / requirements).read_text())
        assert "://" not in text
        packages = re.split(r"\n(?=\S)", text.strip())
        assert [package for package in packages if "==" not in package or "--hash=sha256:" not in package] == []


RUNTIME = "3.13"


def runtime_python() -> str:
    """Return the interpreter of the runtime's version; "" if there is none, or if it runs these tests."""
    program = shutil.which(f"python{RUNTIME}")
    if program is None or sys.version_info[:2] == tuple(int(part) for part in RUNTIME.split(".")):
        return ""
    # Where pyenv has several versions, its program of this name asks for one.
    asked = subprocess.run(
        [program, "-c", "import sys; print(sys.executable)"], env=os.environ | {"PYENV_VERSION": RUNTIME},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return asked.stdout.strip() if asked.returncode == 0 else ""


if PYTHON := runtime_python():

    @pytest.mark.long
    def test_all_that_ships_passes_its_tests_under_the_runtimes_python() -> None:
        """All tests of handlers/ run, if this machine has that Python."""
        venv = f".venv-{RUNTIME}"
        make = ["make", "--silent", f"{venv}/.installed", f"PYTHON={PYTHON}", f"VENV={venv}"]
        made = subprocess.run(make, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stdout + made.stderr
        command = [f"{venv}/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/handlers"]
        run = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout + run.stderr
        assert re.fullmatch(r"\d{4,} passed.*", run.stdout.strip().splitlines()[-1]), run.stdout
