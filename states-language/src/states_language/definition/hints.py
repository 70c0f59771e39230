"""Advises what to do about a problem of a definition; for a misspelt name, suggests the nearest known one.

Invariant: every problem gets a hint, and a hint never contradicts the rule.
"""

import difflib
import re
from collections.abc import Mapping
from typing import Any

from states_language.definition.fields import DefinitionError
from states_language.definition.pointers import keys, lines_of, locate, value_at

_EXAMPLES = {
    "Type": "Type: Pass",
    "StartAt": "StartAt: the name of the first state",
    "States": "States: an object of states by name",
    "Resource": "Resource: arn:aws:states:::lambda:invoke",
    "Next": "Next: the name of a state",
    "ErrorEquals": "ErrorEquals: [States.ALL]",
    "Choices": "Choices: [{Variable: $.n, NumericEquals: 1, Next: the name of a state}]",
    "Branches": "Branches: [{StartAt: ..., States: ...}]",
    "ItemProcessor": "ItemProcessor: {StartAt: ..., States: ...}",
    "Seconds": "Seconds: 60",
    "Variable": "Variable: $.n",
    "FunctionName": "FunctionName: the function's name",
}
_COUNTERPARTS = {
    **dict.fromkeys(("OutputPath", "ResultPath", "ResultSelector", "Result"), "Output"),
    **{f"{name}Path": name for name in ("Seconds", "Timestamp", "TimeoutSeconds", "HeartbeatSeconds")},
    **{f"{name}Path": name for name in ("Error", "Cause", "MaxConcurrency")},
    "Output": "ResultPath",
    "Parameters": "Arguments",
    "Arguments": "Parameters",
    "ItemsPath": "Items",
    "Items": "ItemsPath",
    "Variable": "Condition",
    "Condition": "Variable",
}
"""The field of the other query language that does what a field of one does."""
_WITHOUT_NEXT = {
    "Succeed state": "Remove it: a Succeed state ends its line.",
    "Fail state": "Remove it: a Fail state ends the execution.",
    "Choice state": "Remove it: a Choice goes on by the Next of its rules, and by Default.",
}
# The first pattern that matches the rule decides.
_ADVICE = (
    (r"is used twice", "Give one of the two another name: a name may occur only once in the whole machine."),
    (r"no state ends", "Give one of its states End: true, or lead to a Succeed or a Fail."),
    (r"a reference to '", "Write $states.input.name for the input, $name for a variable."),
    (r"errorOutput", "Use it in the Output or Assign of a Catcher."),
    (r"resource provided \$\{", "A placeholder is filled in at deployment: check the definition that it makes."),
    (r"needs a value", "Give each ${Name} a value: load's substitutions={...}, the command's --substitute NAME=VALUE."),
    (r"not reachable", "Lead to it by Next, Default, Choices or Catch of another state, or remove it."),
    (r"Reference Path", "Write names and positive indexes only, such as $.a.b[0]; no *, .., slice or filter."),
    (r"is not a valid JSONPath|must be a JSONPath",
     "A path begins with $ for the input, or with $$ for the Context Object: $.a.b[0]."),
    (r"intrinsic function", "A path begins with $; a call is written States.Name(...), a text in it in 'quotes'."),
    (r"can not be 'JSONPath'", "Remove it, and write the state in JSONata."),
    (r"must be JSONPath or JSONata", "Write QueryLanguage: JSONata, or leave it out for JSONPath."),
    (r"[Jj]SONata|\{%", "A JSONata expression is a text that begins with {% and ends with %}."),
    (r"exactly one of Next and End", "Say where to go on (Next: a state) or that the line ends here (End: true)."),
    (r"States\.ALL stands alone", "Give States.ALL a Retrier or Catcher of its own, and make it the last of the list."),
    (r"at least one Error Name", "Name the errors, such as States.Timeout; States.ALL names all of them."),
    (r"exactly one operator", "Give the rule one operator, such as StringEquals, NumericLessThan or IsPresent."),
    (r"wrong type", "The operator's name says the type: Numeric needs a number, String a text, Boolean true or false."),
    (r"RFC ?3339", "Write the time as 2026-01-31T23:59:59Z."),
    (r"resource .* not recognized", "Name a function's ARN, or arn:aws:states:::service:action."),
    (r"only one of these fields", "Keep one of them and remove the others."),
    (r"at least one (rule|branch)", "Write a list with at least one element."),
    (r"must be 1\.0", "Leave Version out, or write it as a text: Version: '1.0'."),
    (r"is not a variable name", "Choose a name such as count or last_seen."),
    (r"smaller than TimeoutSeconds", "Lower HeartbeatSeconds or raise TimeoutSeconds."),
    (r"whole number|must be a number|between|at least", "Give a number within the bounds, without quotes."),
    (r"JSON object", "Write name: value pairs, in JSON within braces."),
    (r"must be an array|at least one", "Write a list with at least one element."),
    (r"must be a string", "Write a text; a number or true that is meant as text stands in quotes."),
    (r"true or false", "Write true or false without quotes."),
    (r"appears twice", "Rename one of the two, for one of them would be lost."),
    (r"is not valid UTF", "Save the file as UTF-8."),
    (r"characters", "Choose a shorter name; the Comment has room for the rest."),
)  # fmt: skip
_FALLBACK = "docs/supported.md of states-language lists what is supported."


def hint(definition: Mapping[str, Any], problem: DefinitionError) -> str:
    """Return one sentence of advice for a problem of the definition."""
    path, rule = keys(problem.pointer), problem.rule
    if match := re.search(r"there is no state '(.*)'", rule):
        return _suggest_state(definition, path, match[1])
    if match := re.fullmatch(r"is a field of (\w+); the query language here is (\w+)", rule):
        instead = _COUNTERPARTS.get(str(path[-1]))
        other = f" {instead} is what {match[2]} has for it." if instead else ""
        return f"Remove it, or say QueryLanguage: {match[1]}." + other
    if "is not a field of" in rule:
        name = str(path[-1])
        if name in ("Next", "End"):
            return _WITHOUT_NEXT.get(rule.rpartition("a ")[2], "Remove it; another field names the next state.")
        near = difflib.get_close_matches(name, problem.fields, 1)
        return f"Did you mean {near[0]}?" if near else "Remove it; write text for readers into Comment."
    if match := re.search(r"required: (\w+)|field '(\w+)' is required", rule):
        name = match[1] or match[2]
        return f"Add {_EXAMPLES[name]}." if name in _EXAMPLES else f"Add the field {name}."
    if match := re.search(r"'(.*)' is not one of (.*)", rule):
        near = difflib.get_close_matches(match[1], match[2].split(", "), 1)
        return f"Did you mean {near[0]}?" if near else "Write one of them with exactly these capitals."
    if isinstance(value := value_at(definition, path), str) and "${" in value and "resource" not in rule:
        rule = "a name needs a value"
    return next((advice for pattern, advice in _ADVICE if re.search(pattern, rule)), _FALLBACK)


def _suggest_state(definition: Mapping[str, Any], path: tuple[str, ...], wanted: str) -> str:
    """Suggest a state of the same line, for no state leads out of its line."""
    states = value_at(definition, (*locate(path).line.path, "States"))
    names = [name for name in states if isinstance(name, str)] if isinstance(states, dict) else []
    near = difflib.get_close_matches(wanted, names, 1)
    if near:
        return f"Did you mean '{near[0]}'?"
    if any(wanted in line["States"] for _, line in lines_of(definition)):
        return f"'{wanted}' is in another branch or Map; a state can lead only to states of its own `States`."
    return f"The states beside it: {', '.join(names[:8])}{' ...' if len(names) > 8 else ''}."
