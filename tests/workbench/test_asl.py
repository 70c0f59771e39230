"""`streamkeeper asl`: the interpreter's commands with our variables and our Graphviz; and the page of our machines."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from local.cli import main
from local.stages import ROOT
from local.workbench.folder_page import folder_readme
from machines import function_raising, line, task, write_file
from states_language import load, read_definition, warnings
from states_language.drawing.dot import FAILED, TAKEN

GOOD = {"Comment": "A test.", "StartAt": "A", "States": {"A": {"Type": "Succeed", "Comment": "The end."}}}
MACHINE: dict[str, Any] = line(
    ("Rest", {"Type": "Wait", "Seconds": 3, "Next": 'The "end"'}),
    ('The "end"', task(Catch=[{"ErrorEquals": ["X"], "Next": "Bad"}], Next="Good")),
    ("Good", {"Type": "Succeed"}),
    ("Bad", {"Type": "Fail"}),
)


def test_our_own_machines_are_checked_with_their_variables_filled(capsys: pytest.CaptureFixture[str]) -> None:
    """The files in statemachines/ have no problem in any stage."""
    files = [str(path) for path in sorted((ROOT / "statemachines").glob("*.asl.yml"))]
    assert main(["asl", "check", "--json", *files]) == 0
    assert main(["asl", "check", "--stage", "prod", *files]) == 0
    assert "${" not in capsys.readouterr().out


def test_a_variable_that_does_not_exist_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The status is 2, and the variable is named, because nothing can be said about the rest."""
    text = json.dumps(GOOD).replace("A test.", "${self:custom.settings.nonsense}")
    assert main(["asl", "check", write_file(tmp_path, "a.json", text)]) == 2
    assert "${self:custom.settings.nonsense} cannot be resolved: there is no such setting" in capsys.readouterr().err


def test_the_known_faults_of_our_machines_are_warned_of() -> None:
    """They are faults of the machines that are kept for comparison; the deployed one has a bound."""
    named = {path.name.partition(".")[0]: path for path in (ROOT / "statemachines").glob("*.asl.yml")}
    listed = {
        name: {one.practice for one in warnings(read_definition(named[name])) if one.practice != "comment"}
        for name in ("retry", "staggered", "connections")
    }
    assert listed == {"retry": {"history"}, "staggered": {"endless-loop"}, "connections": set()}


def test_a_mistake_is_status_2_and_names_our_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As for each verb, it is one sentence on standard error."""
    path = write_file(tmp_path, "a.json", {})
    assert main(["asl", "run", path]) == 2
    said = capsys.readouterr().err
    assert said.startswith("streamkeeper: ")
    assert f"`streamkeeper asl check {path}` lists all." in said


def test_svg_holds_every_state_and_marks_the_visited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The SVG is well-formed, has each state's name, and the failed state has the colour of failure."""
    history = load(MACHINE).execute(functions={"work": function_raising("X")}).history
    machine, path = write_file(tmp_path, "a.json", MACHINE), write_file(tmp_path, "h.json", history)
    assert main(["asl", "graph", machine, "--path", path]) == 0
    tree = ET.fromstring(capsys.readouterr().out)
    nodes = {
        " ".join(text.text or "" for text in node.findall(".//{*}text")): {
            shape.get("stroke") for shape in [*node.findall(".//{*}path"), *node.findall(".//{*}polygon")]
        }
        for node in tree.findall(".//{*}g")
        if node.get("class") == "node"
    }
    assert {'The "end"', "Rest 3", "Good", "Bad"} < nodes.keys()
    assert TAKEN in nodes["Rest 3"]
    assert FAILED in nodes["Bad"]
    assert TAKEN not in nodes["Good"]


def test_the_readme_shows_the_files_as_they_are(tmp_path: Path) -> None:
    """The README is what `python -m local.workbench.folder_page statemachines` prints."""
    folder = ROOT / "statemachines"
    assert (folder / "README.md").read_text() == folder_readme(folder)
    assert "mermaid" not in folder_readme(tmp_path)
