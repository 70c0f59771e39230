"""The state machines of the local run: those of the stack, and those that somebody has created.

Decides which machines there are and what is kept of them. It does not know what runs. Invariants: a created machine is
on disk, whole, before its creation is answered, and is there after a restart; a machine of the stack is as the stack
says whenever the service starts.
"""

import contextlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from local.service.stack import StateMachine
from states_language import DefinitionError, Machine, load

ROLE = "arn:aws:iam::000000000000:role/local"
EXPRESS_LIMIT_S = 300
"""An Express execution runs for five minutes at most (AWS Step Functions quotas)."""


@dataclass(frozen=True)
class Described:
    """A state machine as it stands. `settings` are the API's logging, tracing and encryption configurations."""

    arn: str
    name: str
    definition: str
    type: str
    role_arn: str
    created_ms: int
    updated_ms: int
    revision_id: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    """A state machine and what runs it; `deployed` says that it is the stack's."""

    described: Described
    machine: Machine
    deployed: bool
    deleting: bool = False


class Machines(Mapping[str, Entry]):
    """All state machines by ARN; `folder` keeps those that are not the stack's."""

    def __init__(self, folder: Path, deployed: Mapping[str, tuple[StateMachine, Machine]], now_ms: int) -> None:
        self._folder = folder
        self._entries: dict[str, Entry] = {}
        for arn, (found, machine) in deployed.items():
            described = Described(arn, found.name, found.definition, "STANDARD", ROLE, now_ms, now_ms)
            self._entries[arn] = Entry(described, machine, True)
        self._restore()

    def __getitem__(self, arn: str) -> Entry:
        return self._entries[arn]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, described: Described, machine: Machine) -> Entry:
        """Returns the entry of a new machine, or of one that has changed."""
        deployed = described.arn in self._entries and self._entries[described.arn].deployed
        entry = Entry(described, machine, deployed)
        if not deployed:
            self._write(described)
        self._entries[described.arn] = entry
        return entry

    def deploy(self, found: StateMachine, machine: Machine, now_ms: int) -> bool:
        """Returns whether the stack's machine has changed; what runs goes on under its own definition."""
        before = self._entries.get(found.arn)
        if before is not None and before.described.definition == found.definition:
            return False
        described = Described(found.arn, found.name, found.definition, "STANDARD", ROLE, now_ms, now_ms)
        if before is not None:
            described = replace(
                before.described, definition=found.definition, updated_ms=now_ms, revision_id=new_revision()
            )
        self._entries[found.arn] = Entry(described, machine, True)
        return True

    def tag(self, arn: str, tags: dict[str, str]) -> None:
        """Returns nothing; these are the machine's tags from now on."""
        entry = self._entries[arn]
        self.put(replace(entry.described, tags=tags), entry.machine)

    def mark_deleting(self, arn: str) -> None:
        """Returns nothing; no execution may start any more, and `remove` comes when none runs."""
        self._entries[arn] = replace(self._entries[arn], deleting=True)

    def remove(self, arn: str) -> None:
        """Returns nothing; the machine is forgotten."""
        self._entries.pop(arn)
        self._path(arn).unlink(missing_ok=True)

    def _path(self, arn: str) -> Path:
        return self._folder / f"{arn.rpartition(':')[2]}.json"

    def _write(self, described: Described) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(described.arn)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(asdict(described)), encoding="utf-8")
        os.replace(new, path)

    def _restore(self) -> None:
        for path in sorted(self._folder.glob("*.json")):
            # What cannot be read or run any more is left where it is; nobody is kept from starting by it.
            with contextlib.suppress(OSError, ValueError, TypeError):
                described = Described(**json.loads(path.read_text(encoding="utf-8")))
                if described.arn not in self._entries:
                    self._entries[described.arn] = Entry(described, compiled(described), False)


def compiled(described: Described) -> Machine:
    """Returns what runs the machine; raises DefinitionError."""
    definition = json.loads(described.definition)
    if not isinstance(definition, dict):
        raise DefinitionError("/", "must be a JSON object")
    machine = load(definition)
    if described.type == "EXPRESS":
        machine.timeout_s = min(machine.timeout_s or EXPRESS_LIMIT_S, EXPRESS_LIMIT_S)
    return machine


def new_revision() -> str:
    """Returns the id of a new revision."""
    return str(uuid.uuid4())
