"""Keeps the state machines of the local service: those of the stack, and those that a request created.

Invariants: a created machine is on disk, whole, before its creation is answered, and exists after a restart; a machine
of the stack has the stack's definition whenever the service starts.
"""

import contextlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

from states_language import DefinitionError, Machine, load
from states_language.server.diagnostics import load_remembered
from states_language.server.requests import REGION, Refusal
from states_language.server.versions import Published, restore_published, split_qualifier


class StateMachine(Protocol):
    """A machine that a host deploys; `definition` is JSON text, `type` STANDARD or EXPRESS."""

    @property
    def name(self) -> str: ...
    @property
    def arn(self) -> str: ...
    @property
    def definition(self) -> str: ...
    @property
    def type(self) -> str: ...


ROLE = "arn:aws:iam::000000000000:role/local"
LONGEST_STEM = 250
EXPRESS_LIMIT_S = 300
"""How long an Express execution runs at most, in seconds (AWS Step Functions quotas)."""


@dataclass(frozen=True)
class MachineDescription:
    """A state machine as the API describes it; `settings` are the logging, tracing and encryption configurations."""

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
    published: Published = field(default_factory=Published)


@dataclass(frozen=True)
class StartTarget:
    """What the ARN of a machine, a version or an alias starts: the machine as it is now, or as it was published."""

    description: MachineDescription
    machine: Machine
    deleting: bool = False
    version_arn: str | None = None
    alias_arn: str | None = None


@dataclass(frozen=True)
class Entry:
    """A state machine; `deployed` is its loaded definition if it belongs to the stack."""

    description: MachineDescription
    deployed: Machine | None = None
    deleting: bool = False


class Machines(Mapping[str, Entry]):
    """All state machines by ARN; `folder` stores those that do not belong to the stack."""

    def __init__(self, folder: Path, deployed: Mapping[str, tuple[StateMachine, Machine]], now_ms: int) -> None:
        self._folder = folder
        self._entries: dict[str, Entry] = {}
        for arn, (state_machine, machine) in deployed.items():
            self._entries[arn] = Entry(_describe_deployed(state_machine, now_ms), machine)
        self._restore()

    def __getitem__(self, arn: str) -> Entry:
        return self._entries[arn]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, arn: str) -> Entry:
        """Returns the machine of this ARN; raises Refusal for an unknown one."""
        if arn not in self._entries:
            raise unknown_machine(arn)
        return self._entries[arn]

    def start_target(self, arn: str, draw: float = 0.0) -> StartTarget:
        """Returns what an ARN starts; `draw` chooses between an alias's versions. Raises Refusal for an unknown ARN."""
        try:
            return self._start_target(arn, draw)
        except KeyError:
            raise unknown_machine(arn) from None

    def _start_target(self, arn: str, draw: float) -> StartTarget:
        machine_arn, qualifier = split_qualifier(arn)
        entry = self._entries[machine_arn]
        described, alias_arn = entry.description, None
        if not qualifier:
            return StartTarget(described, entry.deployed or load_machine(described), entry.deleting)
        if qualifier.isdecimal():
            number = int(qualifier)
        else:
            number, alias_arn = described.published.alias(qualifier).choose_version(draw), f"{machine_arn}:{qualifier}"
        version = described.published.version(number)
        described = replace(
            described,
            definition=version.definition,
            role_arn=version.role_arn,
            settings=version.settings,
            revision_id=version.revision_id,
            updated_ms=version.created_ms,
        )
        return StartTarget(described, load_machine(described), entry.deleting, f"{machine_arn}:{number}", alias_arn)

    def definitions_to_load(self, arn: str) -> list[str]:
        """Returns the definitions to which this ARN may lead and that are not loaded."""
        machine_arn, qualifier = split_qualifier(arn)
        entry = self._entries.get(machine_arn)
        if entry is None:
            return []
        if not qualifier:
            return [entry.description.definition] if entry.deployed is None else []
        published = entry.description.published
        try:
            routes = {int(qualifier): 100} if qualifier.isdecimal() else dict(published.alias(qualifier).routes)
            return [published.version(number).definition for number in routes]
        except KeyError:
            return []

    def put(self, described: MachineDescription) -> None:
        """Stores a machine that can run, new or changed; one that is being deleted stays so."""
        before = self._entries.get(described.arn, Entry(described))
        machine = before.deployed
        if machine is None and not before.deleting:
            self._write(described)
        elif machine is not None and before.description.definition != described.definition:
            machine = load_machine(described)
        self._entries[described.arn] = Entry(described, machine, before.deleting)

    def deploy(self, state_machine: StateMachine, machine: Machine, now_ms: int) -> bool:
        """Returns whether the stack's machine has changed; running executions keep their definition."""
        before = self._entries.get(state_machine.arn)
        if before is not None and before.description.definition == state_machine.definition:
            return False
        described = _describe_deployed(state_machine, now_ms)
        if before is not None:
            described = replace(
                before.description,
                definition=state_machine.definition,
                updated_ms=now_ms,
                revision_id=str(uuid.uuid4()),
            )
        self._entries[state_machine.arn] = Entry(described, machine)
        return True

    def publish(self, arn: str, published: Published) -> None:
        """Replaces the machine's versions and aliases."""
        self.put(replace(self._entries[arn].description, published=published))

    def mark_deleting(self, arn: str) -> None:
        """Refuses new executions from now on, also after a restart; `remove` follows once none runs."""
        self._path(arn).unlink(missing_ok=True)
        self._entries[arn] = replace(self._entries[arn], deleting=True)

    def remove(self, arn: str) -> None:
        """Removes a machine that is being deleted."""
        self._entries.pop(arn)

    def _path(self, arn: str) -> Path:
        # Names have no colon. The file of a machine in the default region keeps the name that older services gave it.
        region, name = arn.split(":")[3], arn.rpartition(":")[2]
        stem = name if region == REGION else f"{region}:{name}"
        # A name may have 80 characters of four bytes; a file's name has 255 bytes at most.
        return self._folder / f"{stem if len(stem.encode()) <= LONGEST_STEM else sha256(arn.encode()).hexdigest()}.json"

    def _write(self, described: MachineDescription) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(described.arn)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(asdict(described)), encoding="utf-8")
        os.replace(new, path)

    def _restore(self) -> None:
        for path in sorted(self._folder.glob("*.json")):
            # The service starts without a machine whose file can no longer be read or run; the file stays.
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
                stored = json.loads(path.read_text(encoding="utf-8"))
                if "published" in stored:
                    stored["published"] = restore_published(stored["published"])
                described = MachineDescription(**stored)
                if described.arn not in self._entries:
                    load_machine(described)
                    self._entries[described.arn] = Entry(described)


def unknown_machine(arn: str) -> Refusal:
    """Returns the refusal of an ARN that names no machine."""
    return Refusal("StateMachineDoesNotExist", f"State Machine Does Not Exist: '{arn}'")


def machine_deleting(arn: str) -> Refusal:
    """Returns the refusal of a machine that is being deleted."""
    return Refusal("StateMachineDeleting", f"State Machine is being deleted: '{arn}'")


def _describe_deployed(machine: StateMachine, now_ms: int) -> MachineDescription:
    return MachineDescription(machine.arn, machine.name, machine.definition, machine.type, ROLE, now_ms, now_ms)


def load_machine(described: MachineDescription) -> Machine:
    """Returns the machine, which is loaded unless it is remembered; raises DefinitionError."""
    machine = load_remembered(described.definition)
    if described.type == "EXPRESS":
        return Machine(machine.line, min(machine.timeout_s or EXPRESS_LIMIT_S, EXPRESS_LIMIT_S), machine.definition)
    return machine


def loaded_stack(described: Iterable[StateMachine]) -> dict[str, tuple[StateMachine, Machine]]:
    """Returns the stack's machines by ARN, loaded; raises Refusal for a definition that cannot run."""
    machines = {}
    for one in described:
        try:
            machines[one.arn] = (one, load(json.loads(one.definition), deployed=True))
        except DefinitionError as problem:
            raise Refusal("InvalidDefinition", f"The state machine {one.name} cannot be run: {problem}") from None
        except ValueError as problem:
            raise Refusal("InvalidDefinition", f"The state machine {one.name} is not valid JSON: {problem}.") from None
    return machines
