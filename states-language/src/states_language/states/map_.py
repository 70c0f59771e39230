"""The Map state: runs the same line of states for each item of an array, or each member of an object.

An inline Map runs them within this execution (`iterations`), a distributed one as executions of their own (`map_run`).
Only a distributed Map takes an object: an inline one "accepts only a JSON array" (Developer Guide, and recorded).
"""

import re
from collections.abc import Callable
from typing import Any, cast

from states_language.branch import Branch
from states_language.definition.fields import DefinitionError, Fields
from states_language.distributed.item_reader import Batcher, Reader
from states_language.distributed.map_run import MapRun
from states_language.distributed.result_writer import Distribution, Writer
from states_language.failures import EvaluationError, QueryFailure
from states_language.jsonata.evaluation import is_query
from states_language.jsonata.query_flow import QueryFlow, Template, states_variable
from states_language.jsonpath.dataflow import Dataflow, Flow, compile_path_field
from states_language.jsonpath.steps import Name
from states_language.machine import Machine
from states_language.states.base import Line, NumberField, compile_filler
from states_language.states.iterations import Items, Iterations, StateWithLines
from states_language.values import MISSING, compact

INLINE = "INLINE"
DISTRIBUTED = "DISTRIBUTED"
DISTRIBUTED_FIELDS = ("ItemReader", "ItemBatcher", "ResultWriter", "Label")
EXPRESS = "EXPRESS"
EXECUTION_TYPES = ("STANDARD", EXPRESS)
LONGEST_LABEL = 40
CONCURRENCY_MESSAGE = "Expected non-negative integer for {name}, got '{number}' instead."
_NOT_IN_LABEL = re.compile(r"[\s?*<>{}\[\]:;,\\|^~$#%&`\"\x00-\x1f\x7f-\x9f]")


class Map(StateWithLines):
    """A Map state. line: the states of an iteration. is_distributed: whether each is an execution of its own."""

    type = "Map"

    def __init__(self, name: str, fields: Fields) -> None:
        super().__init__(name, fields)
        processors = fields.at_most_one("ItemProcessor", "Iterator")
        if not processors:
            fields.require("ItemProcessor")
        self.line = self._read_processor(fields, processors[0])
        if self.is_distributed:
            self.isolated_lines = (self.line,)
        else:
            self.inner_lines = (self.line,)
            for other in DISTRIBUTED_FIELDS:
                if other in fields:
                    raise fields.error_for(other, "stands in a Map whose ProcessorConfig has Mode DISTRIBUTED")
        label = _read_label(fields)
        self._read_items(fields)
        self.select = _compile_selector(fields)
        self.max_concurrency = NumberField(fields, "MaxConcurrency", 0)
        self.distribution = Distribution(
            machine=Machine(self.line, None, {}),
            express=self.is_express,
            label=label,
            tolerated_count=NumberField(fields, "ToleratedFailureCount", 0),
            tolerated_share=NumberField(fields, "ToleratedFailurePercentage", 0, 100, whole=False),
            reader=Reader(fields) if "ItemReader" in fields else None,
            batcher=Batcher(fields) if "ItemBatcher" in fields else None,
            writer=Writer(fields) if "ResultWriter" in fields else None,
        )
        fields.refuse_unread("a Map state")

    def compile_flow(self, fields: Fields) -> Flow:
        """Return the flow; Parameters is the older name of ItemSelector."""
        return QueryFlow(fields, result=True) if fields.is_jsonata else Dataflow(fields, selector=True, result=True)

    def _read_processor(self, fields: Fields, name: str) -> Line:
        where, value = fields.pointer_of(name), fields.get(name)
        if not isinstance(value, dict):
            raise DefinitionError(where, "must be a JSON object")
        config = Fields(value.get("ProcessorConfig", {}), f"{where}/ProcessorConfig")
        mode = config.string("Mode") or INLINE
        if mode not in (INLINE, DISTRIBUTED):
            raise config.error_for("Mode", f"must be {INLINE} or {DISTRIBUTED}")
        self.is_distributed = mode == DISTRIBUTED
        kind = config.string("ExecutionType")
        self.is_express = kind == EXPRESS
        if self.is_distributed and kind not in EXECUTION_TYPES:
            raise config.error_for("ExecutionType", f"must be one of {', '.join(EXECUTION_TYPES)}")
        config.refuse_unread("ProcessorConfig")
        inner = {key: part for key, part in value.items() if key != "ProcessorConfig"}
        line: Line = fields.compile_line(inner, where, "an item processor")
        return line

    def _read_items(self, fields: Fields) -> None:
        self.items: Template | None = None
        if fields.is_jsonata:
            if "Items" in fields:
                items = fields.get("Items")
                if not isinstance(items, (list, dict) if self.is_distributed else list) and not is_query(items):
                    what = "an array, an object" if self.is_distributed else "an array"
                    raise fields.error_for("Items", f"must be {what} or a JSONata expression")
                self.items = Template(items, fields.pointer_of("Items"), "Items")
        else:
            self.path = compile_path_field(fields, "ItemsPath", absent="$")

    async def attempt(self, branch: Branch, data: Any) -> Any:
        """Run the iterations; return the array of their outputs, or the ResultWriter's result. Raises StateError."""
        narrowed = self.flow.narrow_input(data, branch)
        at_once = int(self.max_concurrency.evaluate_number(data, narrowed, branch, negative=CONCURRENCY_MESSAGE) or 0)
        within = branch.take_within()
        if within is not None and "items" in within:
            items = within["items"]
        else:
            items = [] if self.distribution.reader else self._find_items(data, narrowed, branch)
        if within is None:
            branch.add("MapStateStarted", {"length": len(items)})
        select = self.select(data, narrowed)
        if self.is_distributed:
            branch.group = run = MapRun(self.distribution, branch, data, narrowed, at_once, within)
            return await self.await_lines(branch, run.run(items, select))
        branch.group = iterations = Iterations(branch, self.line, list(items), select, at_once, within)
        return await self.await_lines(branch, iterations.done)

    def _find_items(self, data: Any, narrowed: Any, branch: Branch) -> Items:
        taken: tuple[type, ...] = (list, dict) if self.is_distributed else (list,)
        if self.items is not None:
            found = self.items.evaluate_typed(
                "array", states_variable(data), branch, *(["object"] if self.is_distributed else [])
            )
            return found if isinstance(found, dict) else list(found)
        if isinstance(self.flow, QueryFlow):
            if isinstance(data, taken):
                return cast("Items", data)
            raise QueryFailure(f"Map state input must be an array but was: {compact(data)}", None)
        items = self.path.find_value(narrowed, branch)
        if items is MISSING:
            steps = self.path.steps
            last = steps[-1].name if steps and isinstance(steps[-1], Name) else self.path.text
            raise EvaluationError(f'Unable to apply step "{last}" to input {compact(narrowed)}')
        if not isinstance(items, taken):
            text = self.path.text.removeprefix("$") if self.path.is_into_context else self.path.text
            raise EvaluationError(f'Reference path "{text}" must point to array.')
        return cast("Items", items)


Select = Callable[[Any, Any], Any]


def _compile_selector(fields: Fields) -> Callable[[Any, Any], Select]:
    """Return a function of a state's input; its result is the function that returns the input of an iteration."""
    named = ["ItemSelector"] if fields.is_jsonata else fields.at_most_one("ItemSelector", "Parameters")
    if not named or named[0] not in fields:
        return lambda _raw, _narrowed: lambda _branch, item: item
    fill = compile_filler(fields, named[0], "ItemSelector")
    return lambda raw, narrowed: lambda branch, _item: fill(raw, narrowed, branch)


def _read_label(fields: Fields) -> str | None:
    label = fields.string("Label")
    if label is None:
        return None
    if not 1 <= len(label) <= LONGEST_LABEL:
        raise fields.error_for("Label", f"has 1 to {LONGEST_LABEL} characters")
    if match := _NOT_IN_LABEL.search(label):
        raise fields.error_for("Label", f"must not have the character {match.group()!r}")
    return label
