"""The deliberate defects of the store and the machine as the unit tests meet them: in the requests and the definition.

What chaos puts into the store is taken from there; the others, which the model has as rules, are clauses left out here.
It decides nothing else. Invariant: the unit
test that is named for a defect passes without it (`teeth.py` names them).
"""

import re
from collections.abc import Callable
from typing import Any

from handlers.store.connection_store import Store
from handlers.store.control_writes import NOBODY_CAME
from tests.chaos import chaos_defects, protocol_defects

Edit = Callable[[dict[str, Any]], None]
LANES = "AB"


def without(clause: str, where: str) -> Callable[..., Any]:
    """A `Store._change` whose conditions lack `clause` in each request whose update has `where`."""
    sound = Store._change

    def change(store: Store, stream_id: str, text: str, condition: str, names: Any, values: Any, *more: Any,
               **named: Any) -> Any:  # fmt: skip
        if where in text:
            condition = condition.replace(clause, "attribute_not_exists(nothing)")
            names = [name for name in names if f"#{name}" in text + condition]
            values = {name: value for name, value in values.items() if name in f"{text} {condition}"}
        return sound(store, stream_id, text, condition, names, values, *more, **named)

    return change


def raises_no_fence(store: Store, *arguments: Any, sound: Callable[..., Any] = Store._change, **named: Any) -> Any:
    """A claim that leaves the fence as it is."""
    values = dict(arguments[4])
    if ":one" in values:
        values[":one"] = values[":zero"]
    return sound(store, *arguments[:4], values, *arguments[5:], **named)


def _of_chaos(name: str) -> tuple[str, Any]:
    defect = next(defect for defect in chaos_defects.DEFECTS if defect.name == name)
    if defect.function is not None:
        return defect.function
    assert defect.store is not None
    return f"handlers.store.connection_store.Store.{defect.store[0]}", defect.store[1]


UPDATE = "handlers.store.connection_store.Store._change"
CONNECTED = "#fence >= :fence AND (attribute_not_exists(#connected) OR #connected <= :fence)"
GOES_ON = f"(attribute_not_exists(#ending) OR ({' AND '.join(f'#ending <> :final{n}' for n in range(3))}))"
MINE = f"(#execution = :execution OR (attribute_not_exists(#execution) AND {GOES_ON}))"
RELEASED = "#fence >= :fence AND (attribute_not_exists(#released) OR #released <= :fence)"
# What is replaced, and by what.
STORE: dict[str, tuple[str, Any]] = {
    name: _of_chaos(name)
    for name in (
        "no fence on the cursor",
        "an event is written without its condition",
        "errors of single statements of a batch are ignored",
        "the store's errors are ignored",
        "nobody is marked as connected",
        "the lease is not renewed",
        "partitions are read one after the other",
        "a dead-lettered event is marked before it is sent",
        "what the table refuses is dropped",
        "duplicates count as stored",
        "a gap's item is never revised",
    )
} | {
    "the claim raises no fence": (UPDATE, raises_no_fence),
    "a claim takes another's turn": (UPDATE, without(NOBODY_CAME, "#holder")),
    "the standby ignores the stop": (UPDATE, without("(attribute_not_exists(#stop) OR #stop = :no)", "#holder")),
    "a claim asks for no execution's right": (UPDATE, without(MINE, "#holder")),
    "a predecessor claims what its successor has ended": (UPDATE, without(GOES_ON, "#holder")),
    "connected is marked without a condition": (UPDATE, without(CONNECTED, "SET #connected")),
    "released is marked without a condition": (UPDATE, without(RELEASED, "SET #released")),
}


def _claims_without(clause: str) -> Edit:
    def edit(definition: dict[str, Any]) -> None:
        claim = definition["States"]["Claim lease"]["Arguments"]
        without = re.sub(r"\(\w+\)", "(nothing)", clause)
        claim["ConditionExpression"] = claim["ConditionExpression"].replace(clause, without)

    return edit


def ends_with_a_killed_function(definition: dict[str, Any]) -> None:
    """A function that was killed counts as one that has returned."""
    for lane, branch in zip(LANES, definition["States"]["Lanes"]["Branches"], strict=True):
        task = branch["States"][f"Connect {lane}"]
        killed = next(rule["ErrorEquals"] for rule in task["Catch"] if "Sandbox.Timedout" in rule["ErrorEquals"])
        ended = {"end": {"Error": "StreamEnded", "Cause": "ended"}}
        task["Catch"].insert(0, {"ErrorEquals": killed, "Assign": ended, "Next": f"End {lane}"})


def tells_of_no_death(definition: dict[str, Any]) -> None:
    """What Lambda says of a function that is over is not passed on."""
    for lane, branch in zip(LANES, definition["States"]["Lanes"]["Branches"], strict=True):
        for rule in branch["States"][f"Connect {lane}"]["Catch"]:
            rule["Assign"] = rule["Assign"] | {"died": ""} if "died" in rule["Assign"] else rule["Assign"]


def takes_the_lost_for_dead(definition: dict[str, Any]) -> None:
    """A function of which the machine has lost sight counts as one that is over."""
    for lane, branch in zip(LANES, definition["States"]["Lanes"]["Branches"], strict=True):
        task = branch["States"][f"Connect {lane}"]
        lost = next(rule["ErrorEquals"] for rule in task["Retry"] if "Lambda.Unknown" in rule["ErrorEquals"])
        lost.remove("Lambda.Unknown")
        next(rule["ErrorEquals"] for rule in task["Catch"] if "Sandbox.Timedout" in rule["ErrorEquals"]).append(
            "Lambda.Unknown"
        )


def waits_wherever_a_renewal_is_due(definition: dict[str, Any]) -> None:
    """A lane that nobody took over waits as well, once it has asked for its successor."""
    for lane, branch in zip(LANES, definition["States"]["Lanes"]["Branches"], strict=True):
        handed_over, *_, due, _, _, _ = branch["States"][f"Connect {lane}"]["Catch"]
        due["Assign"] = due["Assign"] | {"rest_s": handed_over["Assign"]["rest_s"]}


MACHINE: dict[str, Edit] = {
    "a lane waits wherever a renewal is due": waits_wherever_a_renewal_is_due,
    "a lane waits after a drop": protocol_defects.waits_after_a_drop,
    "nobody is told of a death": tells_of_no_death,
    "one that the machine has lost is said to be over": takes_the_lost_for_dead,
    "an execution ends with a killed function": ends_with_a_killed_function,
    "a takeover clears a younger stop request": protocol_defects.clears_a_younger_stop_request,
    "who cannot be described is taken for dead": protocol_defects.takes_whom_it_cannot_describe_for_dead,
    "a second POST takes the stream": _claims_without("attribute_not_exists(execution) AND"),
    "a claim clears a younger stop request": _claims_without("attribute_not_exists(stop_at)"),
}
