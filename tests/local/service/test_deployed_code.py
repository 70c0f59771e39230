"""Functions run a copy of the project; broken files are not copied, and each change is reported in a line."""

import asyncio
from pathlib import Path

import pytest

from local.service import osls, redeploy
from local.service.deployed_code import DeployedCode, insert_profile_names, line_for_upgrade
from local.service.redeploy import SHIPPED, Redeployment, file_stamps
from tests import shipped

SOUND = 'framing = "sse"\naddress = "https://example.org/"\n'
BROKEN = SOUND.replace("sse", "csv")
REASON = "the profile 'one': framing must be one of sse, ndjson, json-seq, length, raw, websocket"
HANDOVER = "a stream gets it at its next handover"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with one function and one profile."""
    (tmp_path / "handlers").mkdir()
    (tmp_path / "handlers" / "one.py").write_text("N = 1\n")
    (tmp_path / "env" / "streams").mkdir(parents=True)
    profile(tmp_path, SOUND)
    return tmp_path


def profile(project: Path, text: str, name: str = "one") -> None:
    (project / "env" / "streams" / f"{name}.toml").write_text(text)


def no_problem(_: Path) -> str:
    """Returns "" for every copy: all functions start."""
    return ""


def read_copy(code: DeployedCode) -> tuple[str, dict[str, str]]:
    """Returns the function's source, and the profiles by name."""
    profiles = {path.stem: path.read_text() for path in (code.folder / "env" / "streams").iterdir()}
    return (code.folder / "handlers" / "one.py").read_text(), profiles


def test_changed_code_is_copied_and_broken_code_is_not(project: Path) -> None:
    """Broken code leaves the former code in use, while a changed profile is still deployed. The reason names file and
    line, and the correction is reported.
    """
    code = DeployedCode(project, project / "code")
    assert code.make_first_copy() == []
    source = project / "handlers" / "one.py"
    source.write_text("N = 2\n")
    assert code.deploy(no_problem) == (True, [f"redeployed the code: {HANDOVER}"])
    source.write_text("N = 3\nN = = 4\n")
    profile(project, SOUND, "two")
    refusal = "not redeployed; the former code stays in use: handlers/one.py, line 2: invalid syntax"
    assert code.deploy(no_problem) == (True, [refusal, "profile two is usable: POST /connections/two"])
    assert read_copy(code) == ("N = 2\n", {"one": SOUND, "two": SOUND})
    assert code.deploy(no_problem) == (False, [])
    source.write_text("N = 2\n")
    assert code.deploy(no_problem) == (False, ["the code equals the deployed one again"])
    assert code.deploy(no_problem) == (False, [])


def test_code_from_which_a_function_does_not_start_is_not_deployed(project: Path) -> None:
    """Code is refused with the reason if a function does not start from it. A start is tried only if code has changed,
    and only from the new copy.
    """
    code = DeployedCode(project, project / "code")
    code.make_first_copy()
    tried: list[Path] = []

    def start_problem(folder: Path) -> str:
        tried.append(folder)
        return "no module nosuch" if "nosuch" in (folder / "handlers" / "one.py").read_text() else ""

    source = project / "handlers" / "one.py"
    source.write_text("import nosuch\n")
    assert code.deploy(start_problem) == (False, ["not redeployed; the former code stays in use: no module nosuch"])
    profile(project, SOUND, "two")
    assert code.deploy(start_problem) == (True, ["profile two is usable: POST /connections/two"])
    assert read_copy(code)[0] == "N = 1\n"
    source.write_text("N = 2\n")
    assert code.deploy(start_problem) == (True, [f"redeployed the code: {HANDOVER}"])
    assert (read_copy(code)[0], tried[-1], len(tried)) == ("N = 2\n", code.folder, 3)
    profile(project, SOUND, "three")
    assert code.deploy(start_problem)[0]
    assert (read_copy(code)[0], len(tried)) == ("N = 2\n", 3)


def test_a_broken_profile_leaves_its_former_version_in_use(project: Path) -> None:
    """A broken profile is refused once, with the reason, and its former version stays in use. A profile that was never
    valid is deployed all the same, so that a POST can answer 422.
    """
    code = DeployedCode(project, project / "code")
    code.make_first_copy()
    profile(project, BROKEN)
    assert code.deploy(no_problem) == (True, [f"profile one is refused, its former version stays in use: {REASON}"])
    assert code.deploy(no_problem) == (False, [])
    assert read_copy(code)[1] == {"one": SOUND}
    profile(project, SOUND)
    assert code.deploy(no_problem) == (True, ["profile one is usable: POST /connections/one"])
    profile(project, SOUND + "# more\n")
    assert code.deploy(no_problem) == (True, [f"profile one is redeployed: {HANDOVER}"])
    profile(project, "framing =", "two")
    refusal = "profile two is refused: it is not valid TOML: Invalid value (at end of document)"
    assert code.deploy(no_problem)[1] == [refusal]
    assert (read_copy(code)[1]["two"], code.names) == ("framing =", ["one", "two"])
    (project / "env" / "streams" / "two.toml").unlink()
    assert code.deploy(no_problem) == (True, ["profile two is gone: no stream of it can be started"])
    assert list(read_copy(code)[1]) == ["one"]


def test_a_profile_that_is_broken_at_the_start_is_reported(project: Path) -> None:
    """A profile that is broken at the start is reported, and the service starts nevertheless."""
    profile(project, BROKEN)
    assert DeployedCode(project, project / "code").make_first_copy() == [f"profile one is refused: {REASON}"]


def test_a_copy_stays_while_a_function_runs_from_it(project: Path) -> None:
    """Of the former copies, only those from which a function still runs are kept."""
    code = DeployedCode(project, project / "code")
    code.make_first_copy()
    folders = [code.folder]
    for number in (2, 3):
        (project / "handlers" / "one.py").write_text(f"N = {number}\n")
        code.deploy(no_problem)
        folders.append(code.folder)
    code.remove_old_copies({folders[0]})
    assert [folder.is_dir() for folder in folders] == [True, False, True]


def test_the_request_template_gets_the_names_of_the_profiles() -> None:
    """The service writes the profiles' names into the request template as packaging/profile-names.cjs does."""
    method = osls.template("test")["Resources"]["ApiGatewayMethodConnectionsStreamidVarPost"]
    template = method["Properties"]["Integration"]["RequestTemplates"]["application/json"]["Fn::Sub"][0]
    names = sorted({path.stem for path in shipped.STREAMS.glob("*.toml")})
    assert insert_profile_names(template, names) == template
    more = insert_profile_names(template, [*names, "a.b"])
    assert more != template
    assert insert_profile_names(more, names) == template


async def deploy_nothing(*_: object) -> list[str]:
    """Accepts the changes and reports that nothing changed."""
    return []


def test_a_changed_profile_does_not_compile_the_template(project: Path) -> None:
    """A changed profile does not compile the template, which takes seconds; changed settings do."""
    watch = Redeployment(deploy_nothing, deploy_nothing, "test", print, project)
    before = watch.stamps()
    profile(project, SOUND, "two")
    after = watch.stamps()
    assert (before[0] != after[0], before[1] == after[1]) == (True, True)
    (project / "env" / "test.yml").write_text("")
    assert watch.stamps()[1] != before[1]
    assert file_stamps(project, SHIPPED) == after[0]


def test_a_failure_does_not_end_the_watch(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that cannot be examined is reported. Once the file is gone, the watch deploys the next change."""
    monkeypatch.setattr(redeploy, "CHECK_EVERY_S", 0)
    loop = project / "handlers" / "loop.py"

    async def use_code() -> list[str]:
        raise asyncio.CancelledError

    async def run() -> None:
        async with asyncio.timeout(60):
            watch = asyncio.create_task(Redeployment(use_code, deploy_nothing, "test", print, project).run())
            loop.symlink_to(loop.name)
            while "the redeployment failed" not in capsys.readouterr().err:
                await asyncio.sleep(0)
            loop.unlink()
            profile(project, SOUND, "two")
            await watch

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())


def test_lines_say_which_changes_streams_get_by_an_upgrade() -> None:
    """The lines name `streamkeeper upgrade` for each change that streams get by it; other lines stay as they are."""
    lines = [f"redeployed the code: {HANDOVER}", "profile two is usable: POST /connections/two", "profile two is gone"]
    assert [line_for_upgrade(line) for line in lines] == [
        "redeployed the code: streams take it by `streamkeeper upgrade`",
        "profile two is usable: POST /connections/two, after `streamkeeper upgrade`",
        "profile two is gone",
    ]
