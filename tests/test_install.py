"""Both distributions install into an empty environment, and do there what their READMEs say.

pip reaches its registry as it is configured; the versions are those of the lock.
"""

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from local.checkout import ROOT

README = (ROOT / "states-language" / "README.md").read_text(encoding="utf-8")
SHIPPED = ("handlers", "local", "streamkeeper", "timeline", "pyproject.toml", "README.md", "LICENSE")
HINT = "`pip install --editable ./states-language --editable '.[local]'` installs all that every verb needs."


@dataclass(frozen=True)
class Environment:
    """An environment that was empty, and a folder outside the checkout to run its commands in."""

    programs: Path
    folder: Path
    constraints: Path

    def run(self, program: str, *arguments: str) -> tuple[int, str, str]:
        """Exit status, standard output and standard error."""
        done = subprocess.run(
            [str(self.programs / program), *arguments], cwd=self.folder, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout, done.stderr

    def install(self, source: Path) -> None:
        """Installs a distribution and what it says it needs, each in the version of the lock."""
        wheels = self.folder / f"{source.name}-wheel"
        # The setuptools of these tests builds it, and nothing is compiled that no test runs: both take long.
        self._pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(source))
        here = ("--python", str(self.programs / "python"))
        self._pip(*here, "install", "--no-compile", "--constraint", str(self.constraints), *map(str, wheels.iterdir()))

    def _pip(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def copied(folder: Path, source: Path, names: tuple[str, ...]) -> Path:
    """A copy to build from: building leaves files beside the sources."""
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    for name in names:
        if (source / name).is_dir():
            shutil.copytree(source / name, folder / name, ignore=ignored)
        else:
            folder.mkdir(exist_ok=True)
            shutil.copy(source / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment in which nothing but the product is installed."""
    folder = tmp_path_factory.mktemp("install")
    # The pip of these tests installs into it: to put another there takes as long as all else.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    pins = re.findall(r"^[a-z][\w.-]*==[\w.+]+", (ROOT / "requirements-dev.txt").read_text(), re.MULTILINE)
    (folder / "constraints.txt").write_text("\n".join(pins) + "\n")
    environment = Environment(folder / "venv" / "bin", folder, folder / "constraints.txt")
    environment.install(copied(folder / "product", ROOT, SHIPPED))
    return environment


@pytest.fixture(scope="module")
def library(product: Environment) -> Environment:
    """The same, with the interpreter and what it says it needs."""
    names = ("src", "pyproject.toml", "README.md", "LICENSE")
    product.install(copied(product.folder / "states-language", ROOT / "states-language", names))
    return product


def test_help_and_version_need_nothing_more(product: Environment) -> None:
    """Every verb with its help; the version of pyproject.toml."""
    status, said, mistake = product.run("streamkeeper", "--help")
    assert (status, mistake) == (0, "")
    verbs = (
        "run completion list status events follow gaps sinks console start stop apply repair redrive upgrade request "
        "profile cost compare asl replay timeline chaos"
    )
    assert re.findall(r"^  (\w+)\s+\w", said, re.MULTILINE) == verbs.split()
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert product.run("streamkeeper", "--version") == (0, f"streamkeeper {version[1]}\n", "")


def test_a_verb_says_what_to_install(product: Environment) -> None:
    """One sentence, and exit status 2."""
    status, said, mistake = product.run("streamkeeper", "asl", "check", "machine.asl.yml")
    assert (status, said) == (2, "")
    assert mistake == (
        "streamkeeper: `streamkeeper asl` needs the Python package yaml, which is not installed: "
        f"in a checkout, {HINT}\n"
    )


def test_the_client_is_there_and_typed(product: Environment) -> None:
    """It imports neither what the command needs nor pyarrow, and its folder has py.typed."""
    code = """
import importlib.resources, sys
from streamkeeper import Client
print(Client("http://127.0.0.1:3000"), importlib.resources.files("streamkeeper").joinpath("py.typed").is_file())
print({"handlers", "local", "boto3", "pyarrow", "pandas"} & set(sys.modules))
"""
    printed = "Client('http://127.0.0.1:3000') True\nset()\n"
    assert product.run("python", "-W", "error", "-c", code) == (0, printed, "")


@pytest.mark.parametrize("verb", ["run", "replay", "chaos"])
def test_a_verb_says_that_it_needs_a_checkout(product: Environment, verb: str) -> None:
    """One sentence, and exit status 2."""
    assert product.run("streamkeeper", verb) == (
        2,
        "",
        f"streamkeeper: `streamkeeper {verb}` needs the project's own files, and this copy is installed outside a "
        "checkout: in a checkout, `make setup` makes .venv/bin/streamkeeper.\n",
    )


@pytest.mark.long
def test_the_first_example_of_the_readme_runs(library: Environment) -> None:
    """It has ten lines, and prints what the README says."""
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
