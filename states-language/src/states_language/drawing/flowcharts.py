"""Draws a machine as Mermaid flowcharts: one for its own line of states, one for each branch of a Parallel.

Decides which mark a state gets and what stands at an arrow. It reads the definition alone, resolved or not: a variable
such as `${self:custom.settings.wait_s}` is drawn as its last name. `python -m states_language.drawing.flowcharts
FOLDER` prints the README of a folder of machines. Invariant: the same definition gives the same text, to the byte.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

Definition = Mapping[str, Any]

_VARIABLE = re.compile(r"\$\{[^}]*?([A-Za-z0-9_]+)\}")
# How a state of a type is drawn; the name stands for {}.
_SHAPES = {
    "Choice": '{"{}"}',
    "Wait": '(["{}"])',
    "Succeed": '(("{}"))',
    "Fail": '((("{}")))',
    "Parallel": '[["{}"]]',
    "Map": '[["{}"]]',
}
_BOX = '["{}"]'
_OPERATORS = {"GreaterThanEquals": "≥", "LessThanEquals": "≤", "GreaterThan": ">", "LessThan": "<", "Equals": "="}
_ENTITIES = str.maketrans({"#": "#35;", '"': "#quot;", "<": "#lt;", "&": "#amp;", "`": "#96;"})
_LIST = re.compile(r"^(\d+)\.(?= )")
"""What Mermaid's Markdown would read as a numbered list."""
_NO_OPERATORS = ("Variable", "Next", "Comment", "Assign", "Output")
_KINDS = ("String", "Numeric", "Boolean", "Timestamp")
HEAD = """# State machines

Each file is Amazon States Language; the deployed one is `connections.asl.yml`, the others are kept for comparison. A
rounded box waits, a rhombus chooses, a ring ends, two rings fail. This page is made from the files:
`python -m states_language.drawing.flowcharts statemachines` prints it.
"""


def targets(state: Definition) -> Iterator[tuple[str, str]]:
    """Yields the states that may follow, in the order in which they are tried, each with the words of the arrow."""
    for rule in state.get("Choices", []):
        yield rule["Next"], words(rule)
    if "Default" in state:
        yield state["Default"], "otherwise"
    for number, catcher in enumerate(state.get("Catch", [])):
        wildcard = "any other error" if number else "any error"
        names = [wildcard if name == "States.ALL" else name for name in catcher["ErrorEquals"]]
        yield catcher["Next"], ", ".join(names)
    if "Next" in state:
        yield state["Next"], ""


def words(rule: Definition) -> str:
    """Returns a Choice Rule in words, such as `$.a = 1`."""
    for joint in ("And", "Or"):
        if joint in rule:
            return f" {joint.lower()} ".join(words(one) for one in rule[joint])
    if "Not" in rule:
        return f"not {words(rule['Not'])}"
    if "Condition" in rule:
        return plain(rule["Condition"])
    ((operator, value),) = ((name, one) for name, one in rule.items() if name not in _NO_OPERATORS)
    if operator == "IsPresent":
        return f"{rule['Variable']} is {'there' if value else 'absent'}"
    if operator.startswith("Is"):
        return f"{rule['Variable']} is {'' if value else 'not '}{operator.removeprefix('Is').lower()}"
    name = operator.removesuffix("Path")
    for kind in _KINDS:
        name = name.removeprefix(kind)
    shown = json.dumps(value) if isinstance(value, bool) or value == "" else plain(value)
    return f"{rule['Variable']} {_OPERATORS.get(name, 'matches' if name == 'Matches' else operator)} {shown}"


def flowchart(line: Definition) -> str:
    """Returns the Mermaid text of one line of states: a machine, or a branch."""
    states = line["States"]
    key = {name: f"s{number}" for number, name in enumerate(states)}
    drawn = ["flowchart TD", f"  start(( )) --> {key[line['StartAt']]}"]
    for name, state in states.items():
        rows = [name, duration(state)] if state["Type"] == "Wait" else [name]
        drawn.append(f"  {key[name]}{shape(state['Type'], *rows)}")
    for name, state in states.items():
        for target, said in targets(state):
            drawn.append(f"  {key[name]} -->{f'|{chr(34)}{quoted(said)}{chr(34)}|' if said else ''} {key[target]}")
        if state.get("End"):
            drawn.append(f"  {key[name]} --> stop(( ))")
    return "\n".join(drawn)


def lines(definition: Definition, title: str = "") -> Iterator[tuple[str, Definition]]:
    """Yields the machine's own line and every branch below it, each with a title ("" for the machine's own)."""
    yield title, definition
    for name, state in definition["States"].items():
        for number, branch in enumerate(state.get("Branches", []), 1):
            yield from lines(branch, f"{name}, branch {number}")


def page(folder: Path) -> str:
    """Returns the README of a folder: each machine's comment, pictures, and what each of its states is for."""
    parts = [HEAD]
    for path in sorted(folder.glob("*.asl.yml")):
        definition = yaml.safe_load(path.read_text(encoding="utf-8"))
        parts.append(f"## {path.name}\n\n{plain(definition.get('Comment', ''))}\n")
        for title, line in lines(definition):
            if title:
                parts.append(f"### {title}\n")
            parts.append(f"```mermaid\n{flowchart(line)}\n```\n")
            parts.append("| state | type | |\n|---|---|---|")
            parts += [f"| {name} | {one['Type']} | {plain(one['Comment'])} |" for name, one in line["States"].items()]
            parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def duration(state: Definition) -> str:
    """Returns how long a Wait state waits, as it is written."""
    field = next(name for name in ("Seconds", "Timestamp", "SecondsPath", "TimestampPath") if name in state)
    return plain(state[field])


def plain(value: Any) -> str:
    """Returns a text on one line, a variable as its last name and a JSONata expression without its brackets."""
    return " ".join(_VARIABLE.sub(r"\1", str(value)).removeprefix("{%").removesuffix("%}").split())


def quoted(*rows: str) -> str:
    """Returns a text as it stands between quotes in Mermaid: nothing in it is markup, whatever a state is called."""
    return "<br/>".join(_LIST.sub(r"\1#46;", plain(row).translate(_ENTITIES)) for row in rows)


def shape(kind: str, *rows: str) -> str:
    """Returns the Mermaid text of a box for a state of this type."""
    return _SHAPES.get(kind, _BOX).replace("{}", quoted(*rows))


if __name__ == "__main__":
    sys.stdout.write(page(Path(sys.argv[1])))
