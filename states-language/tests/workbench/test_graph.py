"""`graph`: the three formats, and the path of an execution in the picture."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from machines import function_raising, line, task, write_file
from states_language import Event, load
from states_language.__main__ import main
from states_language.drawing.boxes import rule_text, targets
from states_language.drawing.histories import marks
from states_language.drawing.mermaid import flowchart
from states_language.workbench import Mistake, files
from states_language.workbench.graph import picture

BRANCH = line(("In", {"Type": "Pass", "Next": 'The "end"'}), ('The "end"', {"Type": "Pass"}))
MACHINE: dict[str, Any] = line(
    ("Both", {"Type": "Parallel", "Branches": [BRANCH, line(("Rest", {"Type": "Wait", "Seconds": 3}))], "Next": "Do"}),
    ("Do", task(Catch=[{"ErrorEquals": ["X"], "Next": "Do"}, {"ErrorEquals": ["Y"], "Next": "Bad"}], Next="Good")),
    ("Good", {"Type": "Succeed"}),
    ("Bad", {"Type": "Fail"}),
)
ALL = {"ErrorEquals": ["States.ALL"]}
A_IS_1 = {"Variable": "$.a", "NumericEquals": 1}
MERMAID = """flowchart TD
  start(( ))
  s4["Do"]
  s5(("Good"))
  s6((("Bad")))
  subgraph s0_frame[" "]
    s0[["Both"]]
    s0_join(( ))
    subgraph s0_line0["branch 1"]
      s1["In"]
      s2["The #quot;end#quot;"]
    end
    subgraph s0_line1["branch 2"]
      s3(["Rest<br/>3"])
    end
  end
  start --> s0
  s1 --> s2
  s2 --> s0_join
  s0 --> s1
  s3 --> s0_join
  s0 --> s3
  s0_join --> s4
  s4 -->|"X"| s4
  s4 -->|"Y"| s6
  s4 --> s5
  classDef visited fill:#dafbe1,stroke:#1a7f37,stroke-width:2px
  class s4,s6,s0,s1,s2,s3 visited
  style s6 fill:#ffebe9,stroke:#cf222e,stroke-width:2px
  linkStyle 0,1,2,3,4,5,6,7,8 stroke:#1a7f37,stroke-width:2px
"""


def history() -> list[Event]:
    return load(MACHINE).execute(functions={"work": function_raising("X", "Y")}).history


def test_mermaid_marks_the_path_of_an_execution(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Branches are subgraphs. Visited states, the transitions taken and the failed state are marked."""
    machine, path = write_file(tmp_path, "a.json", MACHINE), write_file(tmp_path, "h.json", {"events": history()})
    assert main(["graph", machine, "--format", "mermaid", "--path", path]) == 0
    assert capsys.readouterr().out == MERMAID


def test_dot_names_every_arrow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """DOT has an arrow for each way out of a state. Branches that end meet at the join."""
    assert main(["graph", write_file(tmp_path, "a.json", MACHINE), "--format", "dot"]) == 0
    arrows = re.findall(r"(\w+) -> (\w+)", capsys.readouterr().out)
    assert arrows == re.findall(r"(\w+) -->(?:\S+)? (\w+)", MERMAID)


def test_a_history_of_aws_gives_the_same_marks() -> None:
    """Marks need no timestamps, so boto3's datetimes and reverseOrder change nothing."""
    ours = history()
    theirs = [{**event, "timestamp": datetime.now(UTC)} for event in ours]
    assert marks(theirs) == marks(theirs[::-1]) == marks(ours)
    assert marks(ours).states["Do"] == 2
    assert marks(ours).ways["Do", "Do"] == 1
    assert marks(ours).failed == "Bad"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("`a` b", "#96;a#96; b"),
        ("<b>&amp;", "#lt;b>#amp;amp;"),
        ("#1; of 2", "#35;1; of 2"),
        ("10. Last", "#49;0. Last"),
        ("- b_c_d _e_", "#45; b_c_d #95;e#95;"),
        ("*a* [b] ~~c~~ \\n", "#42;a#42; #91;b] #126;#126;c#126;#126; #92;n"),
        ("$$.a is $$.b", "#36;$.a is #36;$.b"),
        ("a@b.c https://d www.e", "a#64;b.c https:#47;/d www#46;e"),
        ("a\n{}", "a {}"),
        (" ", "␣"),
    ],
)
def test_a_name_is_not_markup_in_mermaid(name: str, shown: str) -> None:
    """Mermaid shows a state's name as it is: no Markdown, address, entity, HTML or mathematics between $$."""
    assert f'  s0["{shown}"]' in picture(line((name, {"Type": "Pass"})), "mermaid").splitlines()


def test_the_end_is_marked_only_at_the_state_that_ended_the_execution() -> None:
    """A state whose error was caught is not marked as the end."""
    states = ("Do", task(Catch=[{"ErrorEquals": ["X"], "Next": "Over"}])), ("Over", {"Type": "Pass"})
    taken = marks(load(line(*states)).execute(functions={"work": function_raising("X")}).history)
    assert (taken.ended, taken.ways["Do", "Over"]) == ({"Do": 0, "Over": 1}, 1)


def test_jsonata_and_map_are_drawn() -> None:
    """A JSONata condition labels its arrow without brackets. A Map's inner states are within its frame."""
    choice = {"Type": "Choice", "Choices": [{"Condition": "{% $n > 1 %}", "Next": "Each"}], "Default": "Each"}
    each = {"Type": "Map", "ItemProcessor": line(("One", {"Type": "Pass"}))}
    drawn = picture(line(("Look", choice), ("Each", each)), "mermaid")
    assert '  s0 -->|"$n > 1"| s1' in drawn.splitlines()
    assert 'subgraph s1_line0["each item"]' in drawn


def test_each_way_out_of_a_state_is_an_arrow() -> None:
    """Rules, Default, Catchers and Next are arrows, in the order in which they are tried."""
    rule = {"Variable": "$.n", "NumericGreaterThanEquals": "${self:custom.settings.most}", "Next": "Rest"}
    branches = [line(("One", {"Type": "Pass"}))]
    machine = line(
        ("Look", {"Type": "Choice", "Choices": [rule], "Default": "Both"}),
        ("Rest", {"Type": "Wait", "Seconds": 3, "Next": "Look"}),
        ("Both", {"Type": "Parallel", "Branches": branches, "Catch": [{**ALL, "Next": "Over"}], "Next": "Over"}),
        ("Over", {"Type": "Succeed"}),
    )
    rows = [row.strip() for row in flowchart(machine).splitlines()]
    assert rows[2:6] == ['s0{"Look"}', 's1(["Rest<br/>3"])', 's2[["Both"]]', 's3(("Over"))']
    assert rows[6:] == [
        *("start --> s0", 's0 -->|"$.n ≥ most"| s1', 's0 -->|"otherwise"| s2', "s1 --> s0"),
        *('s2 -->|"any error"| s3', "s2 --> s3"),
    ]


def test_catchers_of_data_limit_and_all_errors_are_one_arrow_any_error() -> None:
    """States.ALL does not match States.DataLimitExceeded. Catchers of both to the same state are one arrow."""
    both = [{"ErrorEquals": [name], "Next": "Over"} for name in ("States.DataLimitExceeded", "States.ALL")]
    assert list(targets({"Catch": both})) == [("Over", "any error")]
    apart = [both[0] | {"Next": "Large"}, both[1]]
    assert list(targets({"Catch": apart})) == [("Large", "States.DataLimitExceeded"), ("Over", "any other error")]


@pytest.mark.parametrize(
    ("rule", "label"),
    [
        ({"Variable": "$.a", "StringEquals": "b"}, "$.a = b"),
        ({"Variable": "$.a", "IsPresent": False}, "$.a is absent"),
        ({"Variable": "$.a", "StringMatches": "b*"}, "$.a matches b*"),
        ({"Variable": "$.a", "IsNumeric": False}, "$.a is not numeric"),
        ({"Variable": "$.a", "NumericLessThanPath": "$.b"}, "$.a < $.b"),
        ({"Not": {"Variable": "$.a", "BooleanEquals": True}}, "not $.a = true"),
        ({"Or": [{"Variable": "$.a", "IsPresent": True}, {"Variable": "$.b", "IsNull": True}]},
         "$.a is there or $.b is null"),
        ({"And": [{"Or": [A_IS_1, {"Not": {"And": [A_IS_1, A_IS_1]}}]}, A_IS_1]},
         "($.a = 1 or not ($.a = 1 and $.a = 1)) and $.a = 1"),
    ],
)  # fmt: skip
def test_every_form_of_rule_has_a_label(rule: dict[str, Any], label: str) -> None:
    """Each form of Choice Rule has readable words at its arrow."""
    assert rule_text(rule) == label


def test_a_program_that_takes_too_long_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the drawing program exceeds its time limit, the message names it."""
    monkeypatch.setattr(files, "DRAW_LIMIT_S", 0.1)
    with pytest.raises(Mistake, match=r"`sleep` took more than 0.1 s"):
        files.drawn("", ("sleep", "9"))


@pytest.mark.parametrize("content", [{}, [1], {"events": 3}, [{"id": "1", "type": "A"}], [{"id": 1}]])
def test_a_file_that_is_not_a_history_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: Any
) -> None:
    """A file that is not a history gives status 2, and the message says what it must be."""
    machine, path = write_file(tmp_path, "a.json", MACHINE), write_file(tmp_path, "h.json", content)
    assert main(["graph", machine, "--path", path]) == 2
    assert "must be a list of events" in capsys.readouterr().err
