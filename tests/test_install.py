"""Both distributions install into an empty environment, and do what their READMEs say.

pip reaches its registry as it is configured; the versions are those of the lock.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from local.checkout import ROOT
from local.service import osls
from tests.harness import free_port

README = (ROOT / "states-language" / "README.md").read_text(encoding="utf-8")
ROOMS = ("handlers", "local", "streamkeeper", "timeline", "states-language/src")
SHIPPED = (*ROOMS, "env", "packaging", "statemachines", "pyproject.toml", "setup.py", "README.md", "LICENSE")
PROJECT = Path("local", "project")
OWN = """
address = "http://127.0.0.1:{port}/demo:own"
allow_private = true
framing = "sse"
deliver = {{ sqs = "own.fifo" }}
"""


@dataclass(frozen=True)
class Environment:
    """The folder of the programs, an empty folder outside the checkout to run them in, and more variables for them."""

    programs: Path
    folder: Path
    variables: dict[str, str]

    def run(self, *command: str) -> tuple[int, str, str]:
        """Returns exit status, standard output and standard error."""
        done = subprocess.run(
            [str(self.programs / command[0]), *command[1:]], cwd=self.folder, env=self.environment,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a program; no Node is on the path."""
        return {"PATH": str(self.programs), "HOME": os.environ["HOME"], "LANG": "C.UTF-8"} | self.variables


def pip(*arguments: str) -> None:
    """Runs the pip of these tests; to install another into an environment takes as long as everything else."""
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def wheel(folder: Path, source: Path, names: tuple[str, ...], **variables: str) -> Path:
    """Builds the wheel of a copy: building leaves files beside the sources. The setuptools of these tests does it."""
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    for name in names:
        target = folder / "source" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source / name, target, ignore=ignored) if (source / name).is_dir() else shutil.copy(
            source / name, target
        )
    built = folder / "wheel"
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(built)!r})"
    command = [sys.executable, "-c", build]  # as pip has it built, and in half the time
    done = subprocess.run(
        command, cwd=folder / "source", env=os.environ | variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (found,) = built.iterdir()
    return found


def installed(folder: Path, distribution: Path) -> Environment:
    """An environment with an installed wheel and its requirements, each in the version of the lock."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    pins = re.findall(r"^[a-z][\w.-]*==[\w.+]+", (ROOT / "requirements-dev.txt").read_text(), re.MULTILINE)
    (folder / "constraints.txt").write_text("\n".join(pins) + "\n")
    here = ("--python", str(folder / "venv" / "bin" / "python"))
    pip(*here, "install", "--no-compile", "--constraint", str(folder / "constraints.txt"), str(distribution))
    (folder / "empty").mkdir()
    return Environment(folder / "venv" / "bin", folder / "empty", {})


def _compiled(source: Path, target: Path) -> None:
    """Gives the sources of a wheel their compiled files, which need the same times: to compile them takes seconds."""
    for path in source.rglob("*.py"):
        if (found := target / path.relative_to(source)).is_file():
            shutil.copystat(path, found)
            for compiled in path.parent.glob(f"__pycache__/{path.stem}.{sys.implementation.cache_tag}.pyc"):
                (found.parent / "__pycache__").mkdir(exist_ok=True)
                shutil.copy(compiled, found.parent / "__pycache__")


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The contents of the wheel, first on the path of this Python. There is no template, because osls takes seconds."""
    folder = tmp_path_factory.mktemp("install")
    with zipfile.ZipFile(wheel(folder, ROOT, SHIPPED)) as archive:
        archive.extractall(folder / "site")
    for room in ROOMS:
        _compiled(ROOT / room, folder / "site" / ("" if room == ROOMS[-1] else room))
    (folder / "empty").mkdir()
    return Environment(Path(sys.executable).parent, folder / "empty", {"PYTHONPATH": str(folder / "site")})


def verb(product: Environment, *arguments: str) -> tuple[int, str, str]:
    """Runs a verb of the wheel."""
    return product.run("python", "-W", "error", "-m", "local.cli", *arguments)


def test_the_wheel_has_all_files_that_the_verbs_read(product: Environment) -> None:
    """The wheel has settings, profiles, machines and resources below ROOT, files beside the code, the interpreter."""
    site = Path(product.variables["PYTHONPATH"])
    held = {str(path.relative_to(site)) for path in site.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    kinds = ("env/*.yml", "env/*.json", "env/streams/*.toml", "statemachines/*.asl.yml", "packaging/resources/*.yml")
    wanted = {str(PROJECT / path.relative_to(ROOT)) for kind in kinds for path in ROOT.glob(kind)}
    for room, source in (*((room, ROOT / room) for room in ROOMS[:4]), ("", ROOT / ROOMS[4])):
        files = [path for path in source.rglob("*") if path.is_file() and not {"__pycache__"} & set(path.parts)]
        wanted |= {str(room / path.relative_to(source)) for path in files if ".egg-info" not in str(path)}
    left_out = {one for one in wanted if one.startswith("pytest_states_language/")}
    dist_info = {one for one in held if ".dist-info/" in one}
    assert held - dist_info == wanted - left_out


def test_the_wheel_requires_the_interpreters_requirements() -> None:
    """The wheel contains the interpreter, whose own pyproject.toml names its requirements."""
    needed = [
        set(tomllib.loads((folder / "pyproject.toml").read_text())["project"]["dependencies"])
        for folder in (ROOT / "states-language", ROOT)
    ]
    assert needed[0] <= needed[1]


def test_help_and_version(product: Environment) -> None:
    """--help lists every verb; --version prints the version of pyproject.toml."""
    status, said, mistake = verb(product, "--help")
    assert (status, mistake) == (0, "")
    verbs = (
        "run completion list status events follow gaps archive sinks console doctor start stop apply repair redrive "
        "backup restore move upgrade request profile cost plan compare asl replay timeline chaos"
    )
    assert re.findall(r"^  (\w+)\s+\w", said, re.MULTILINE) == verbs.split()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert verb(product, "--version") == (0, f"streamkeeper {version}\n", "")


def test_help_imports_little(product: Environment) -> None:
    """Help takes some 40 ms of a processor: it loads argparse with its imports, and four modules of ours."""
    code = """
import argparse, sys
before = set(sys.modules)
argparse.ArgumentParser().format_help()
needed = set(sys.modules)  # Python 3.14 loads dataclasses for its colours
from local.cli import main
try:
    main(["--help"])
except SystemExit:
    loaded = set(sys.modules) - before
    print(len(loaded) < 60, sorted(name for name in loaded if name.startswith("local.")), file=sys.stderr)
    large = {"importlib.metadata", "dataclasses", "inspect", "json", "asyncio", "timeline"}
    print((loaded - needed) & large, file=sys.stderr)
"""
    ours = ["local.cli", "local.garbage_collection", "local.terminal"]
    status, _, said = product.run("python", "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}")
    assert (status, said) == (0, f"True {ours}\nset()\n")


def test_verbs_work_without_a_checkout(product: Environment) -> None:
    """The user's own profiles are in ./profiles; costs and replays read the files in the wheel."""
    nothing = f"There is no profile in {product.folder / 'profiles'}: `streamkeeper profile new URL` writes one."
    assert verb(product, "profile", "check") == (2, "", f"streamkeeper: {nothing}\n")
    (product.folder / "profiles").mkdir()
    (product.folder / "profiles" / "own.toml").write_text(OWN.format(port=1))
    status, said, mistake = verb(product, "profile", "check", "own", "demo")
    assert (status, mistake, said.partition(";")[0]) == (0, "", "profiles/own.toml: valid")
    assert "demo.toml: valid" in said
    shutil.copy(ROOT / "tests" / "timelines" / "handover.yml", product.folder)
    status, said, _ = verb(product, "replay", "handover.yml")  # which says that it runs, if that takes a while
    assert (status, "gaps 0, 0.000 s in all" in said) == (0, True)


def test_a_verb_says_that_it_needs_a_checkout(product: Environment) -> None:
    """A verb that needs a checkout says so in one sentence, with exit status 2."""
    needs = "needs a checkout of the project, and this command is installed outside of one: clone the project, run "
    needs += "`make setup` there, and use its .venv/bin/streamkeeper."
    sentence = f"streamkeeper: `streamkeeper run` of the stage 'local' {needs}\n"
    assert verb(product, "run") == (2, "", sentence)


def test_the_client_is_installed_and_typed(product: Environment) -> None:
    """The client imports neither the command's requirements nor pyarrow, and its folder has py.typed."""
    code = """
import importlib.resources, sys
from streamkeeper import Client
print(Client("http://127.0.0.1:3000"), importlib.resources.files("streamkeeper").joinpath("py.typed").is_file())
print({"handlers", "local", "boto3", "pyarrow", "pandas"} & set(sys.modules))
"""
    printed = "Client('http://127.0.0.1:3000') True\nset()\n"
    assert product.run("python", "-W", "error", "-c", code) == (0, printed, "")


@pytest.fixture
def command(tmp_path: Path) -> Environment:
    """The command as pipx installs it, from the wheel that `make wheel` makes."""
    templates = tmp_path / "templates"
    templates.mkdir()
    for delivers in (False, True):
        name = osls.kept_template("local", tmp_path, delivers=delivers).name
        (templates / name).write_text(json.dumps(osls.template("local", delivers=delivers)))
    return installed(tmp_path, wheel(tmp_path, ROOT, SHIPPED, STREAMKEEPER_TEMPLATES=str(templates)))


@pytest.fixture
def port() -> int:
    """The first of three ports that are free."""
    return free_port()


@pytest.fixture
def service(command: Environment, port: int) -> Iterator[Environment]:
    """The service of the installed `run`, in the empty folder, with a profile of the user's own that delivers."""
    (command.folder / "profiles").mkdir()
    (command.folder / "profiles" / "own.toml").write_text(OWN.format(port=port + 2))
    running = Environment(command.programs, command.folder, {"PORT": str(port)})
    with (command.folder / "run.log").open("w") as log:
        process = subprocess.Popen(
            [str(command.programs / "streamkeeper"), "run"], cwd=command.folder, env=running.environment, stdout=log,
            stderr=log,
        )  # fmt: skip
        try:
            yield running
        finally:
            process.send_signal(signal.SIGINT)
            status = process.wait(60)
    assert status == 0, (command.folder / "run.log").read_text()


@pytest.mark.long
@pytest.mark.cpu(180)
def test_the_command_runs_everything_in_an_empty_folder(service: Environment, port: int) -> None:
    """Without Node, the demonstration and a user's own profile that delivers run by the real machines."""
    give_up_s = time.monotonic() + 120
    while service.run("streamkeeper", "list")[0] != 0:
        assert time.monotonic() < give_up_s, (service.folder / "run.log").read_text()
        time.sleep(0.5)
    sqs = f"""
import boto3
sqs = boto3.client("sqs", "us-east-1", endpoint_url="http://127.0.0.1:{port + 1}", aws_access_key_id="local",
                   aws_secret_access_key="local")
queue = sqs.create_queue(QueueName="own.fifo", Attributes={{"FifoQueue": "true"}})["QueueUrl"]
print(len(sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=5).get("Messages", [])))
"""
    assert service.run("python", "-c", sqs) == (0, "0\n", "")
    assert service.run("streamkeeper", "start", "demo") == (0, "demo is starting\n", "")
    assert service.run("streamkeeper", "start", "own") == (0, "own is starting\n", "")
    while service.run("python", "-c", sqs)[1] == "0\n":
        assert time.monotonic() < give_up_s, (service.folder / "run.log").read_text()
    for stream in ("demo", "own"):
        status, said, _ = service.run("streamkeeper", "events", stream, "--json", "--limit", "3")
        assert (status, len(said.splitlines())) == (0, 3)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/console") as page:
        assert b"<!doctype html>" in page.read()
    seen = ["--name", "seen", "--seconds", "2"]
    assert service.run("streamkeeper", "profile", "new", f"http://127.0.0.1:{port + 2}/demo:x", *seen)[0] == 0
    status, said, _ = service.run("streamkeeper", "profile", "try", "seen", "--seconds", "2")
    assert (status, "event" in said) == (0, True)
    assert service.run("streamkeeper", "cost")[0] == 0


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment in which nothing but the interpreter is installed."""
    folder = tmp_path_factory.mktemp("library")
    names = ("src", "pyproject.toml", "README.md", "LICENSE")
    return installed(folder, wheel(folder, ROOT / "states-language", names))


@pytest.mark.long
def test_the_first_example_of_the_readme_runs(library: Environment) -> None:
    """The example has ten lines, and prints what the README says."""
    example = re.search(r"```python\n(.+?)```", README, re.DOTALL)
    assert example is not None
    assert len(example[1].splitlines()) == 10
    (library.folder / "example.py").write_text(example[1])
    printed = re.search(r"It prints `(.+?)`", README)
    assert printed is not None
    assert library.run("python", "-W", "error", "example.py") == (0, printed[1] + "\n", "")


@pytest.mark.long
def test_the_library_is_typed_and_brings_its_plugin(library: Environment) -> None:
    """py.typed lies in both packages, and pytest finds the plugin; neither pytest nor Hypothesis was installed."""
    code = """
import importlib.metadata, importlib.resources, importlib.util
from states_language import fuzz, load
for package in ("states_language", "pytest_states_language"):
    spec = importlib.util.find_spec(package)
    print((importlib.resources.files("states_language").parent / package / "py.typed").is_file())
print([point.value for point in importlib.metadata.entry_points(group="pytest11")])
print(importlib.metadata.metadata("states-language")["License-Expression"])
print([importlib.util.find_spec(name) for name in ("pytest", "hypothesis", "boto3")])
"""
    assert library.run("python", "-W", "error", "-c", code) == (
        0,
        "True\nTrue\n['pytest_states_language']\nMIT\n[None, None, None]\n",
        "",
    )
