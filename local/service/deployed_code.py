"""Keeps a copy of what the functions run, handlers/ and env/streams/, and makes a new one when the project changes.

Invariants: a later copy always compiles, and functions start from it; a broken profile keeps its former version; every
refusal is reported once, with its reason.
"""

import ast
import itertools
import json
import re
import shutil
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from handlers.api.known_profiles import parts_of
from handlers.profile.addresses import ProfileError
from handlers.profile.parse import parse
from local.functions.created_functions import read_code_files
from local.profiles.profile_files import placeholders
from local.stack import ProxyRoute, Route

CODE, STREAMS = "handlers", "env/streams"
# The names of profiles in the request template, as packaging/profile-names.cjs writes them. With a bucket of profiles
# it writes an expression for any name, which stays as it is.
_NAMES = re.compile(r"(?<=#set\(\$known = ')[A-Za-z0-9._|\[\]-]*(?=')")
# The streams that are read in parts, as packaging/parts.cjs writes them.
_PARTS = re.compile(r"(?<=#set\(\$parts = )\{[^}]*\}")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_NO_PARTS: Mapping[str, Sequence[str]] = {}
HANDOVER, USABLE = "a stream gets it at its next handover", "is usable: POST /connections/"


@dataclass
class _Copy:
    """One copy; `code` and `profiles` are its sources, by path or name; `refused` has reasons by name."""

    folder: Path
    code: dict[str, bytes] = field(default_factory=dict)
    profiles: dict[str, bytes] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


class DeployedCode:
    """The copies, in `folder`, of the code at `root` and of the profiles in `streams`; later folders win."""

    def __init__(self, root: Path, folder: Path, *streams: Path) -> None:
        self._root = root
        self._streams = streams or (root / STREAMS,)
        self._folder = folder.resolve()
        self._numbers = itertools.count()
        self._copy = _Copy(self._folder)
        self._refused_code = ""

    @property
    def folder(self) -> Path:
        """The folder from which new functions take their code and profiles."""
        return self._copy.folder

    @property
    def names(self) -> list[str]:
        """The names of the profiles, including broken ones, for which a POST says why."""
        return sorted(self._copy.profiles)

    def make_first_copy(self) -> list[str]:
        """Makes the first copy and returns a line for each profile that is broken."""
        shutil.rmtree(self._folder, ignore_errors=True)
        copy = self._new_copy(self._root)
        copy.code, copy.profiles = read_code_files(self._root / CODE), _profiles(*self._streams)
        copy.refused = {name: reason for name, data in copy.profiles.items() if (reason := _problem(name, data))}
        self._copy = copy
        return [f"profile {name} is refused: {reason}" for name, reason in sorted(copy.refused.items())]

    def deploy(self, start_problem: Callable[[Path], str]) -> tuple[bool, list[str]]:
        """Returns whether functions must be restarted, and a line for each change or refusal.

        `start_problem` returns why a function cannot start from the copy in a folder, as a phrase, or "".
        """
        before, lines = self._copy, []
        code, profiles = read_code_files(self._root / CODE), _profiles(*self._streams)
        refusal = _syntax_error({name: data for name, data in code.items() if before.code.get(name) != data})
        copy = None
        if not refusal and code != before.code:
            copy = self._new_copy(self._root)
            refusal = start_problem(copy.folder)
        if refusal:
            if refusal != self._refused_code:
                lines.append(f"not redeployed; the former code stays in use: {refusal}")
            code, copy = before.code, None
        elif code != before.code:
            lines.append(f"redeployed the code: {HANDOVER}")
        elif self._refused_code:
            lines.append("the code equals the deployed one again")
        self._refused_code = refusal
        refused: dict[str, str] = {}
        for name in sorted({*profiles, *before.profiles}):
            lines += self._update_profile(name, profiles, refused)
        if (code, profiles, refused) == (before.code, before.profiles, before.refused):
            return False, lines
        copy = copy or self._new_copy(before.folder)
        for name in {*profiles, *_profiles(copy.folder / STREAMS)}:
            path = copy.folder / STREAMS / f"{name}.toml"
            path.unlink(missing_ok=True) if name not in profiles else path.write_bytes(profiles[name])
        copy.code, copy.profiles, copy.refused = code, profiles, refused
        self._copy = copy
        return True, lines

    def remove_old_copies(self, used: Collection[Path]) -> None:
        """Removes earlier copies, except those from which functions still run, because these may still import."""
        for folder in self._folder.iterdir():
            if folder != self.folder and folder not in used:
                shutil.rmtree(folder, ignore_errors=True)

    def routes(self, compiled: Iterable[Route | ProxyRoute]) -> list[Route | ProxyRoute]:
        """Returns the template's routes with the deployed profiles instead of those it was compiled with."""

        parts = {name: parts_of(name, data.decode("utf-8", "replace")) for name, data in self._copy.profiles.items()}
        parts = {name: ids for name, ids in parts.items() if ids and not _problem(name, self._copy.profiles[name])}

        def insert(templates: Mapping[str, str]) -> dict[str, str]:
            return {kind: insert_profile_names(text, self.names, parts) for kind, text in templates.items()}

        return [
            route
            if isinstance(route, ProxyRoute)
            else replace(route, request_templates=insert(route.request_templates))
            for route in compiled
        ]

    def _update_profile(self, name: str, profiles: dict[str, bytes], refused: dict[str, str]) -> Iterator[str]:
        """Yields lines about one profile; a refused one keeps its former version in `profiles`."""
        former, was_refused = self._copy.profiles.get(name), self._copy.refused.get(name, "")
        if name not in profiles:
            yield f"profile {name} is gone: no stream of it can be started"
            return
        reason = _problem(name, profiles[name])
        if reason:
            refused[name] = reason
            # A profile that was never valid stays as it is, so that a POST answers with the reason.
            sound = former is not None and not _problem(name, former)
            if reason != was_refused:
                goes_on = ", its former version stays in use" if sound else ""
                yield f"profile {name} is refused{goes_on}: {reason}"
            if sound and former is not None:
                profiles[name] = former
        elif former is None or was_refused:
            yield f"profile {name} {USABLE}{name}"
        elif profiles[name] != former:
            yield f"profile {name} is redeployed: {HANDOVER}"

    def _new_copy(self, code_of: Path) -> _Copy:
        number = next(self._numbers)
        folder = self._folder / str(number)
        # Including compiled files, whose sources keep their times; otherwise a function would compile everything again.
        shutil.copytree(code_of / CODE, folder / CODE)
        (folder / STREAMS).mkdir(parents=True)
        for name, data in _profiles(*self._streams).items():
            (folder / STREAMS / f"{name}.toml").write_bytes(data)
        return _Copy(folder)


def insert_profile_names(template: str, names: list[str], parts: Mapping[str, Sequence[str]] = _NO_PARTS) -> str:
    """Returns a request template with the profiles `names` instead of those it was compiled with.

    `parts` are the ids of those in which a stream is read, by its name.
    """
    joined = "|".join(name.replace(".", "[.]") for name in sorted(names))
    listed = ", ".join(f"\"{name}\": '{json.dumps(ids)}'" for name, ids in sorted(parts.items()))
    return _PARTS.sub(lambda _: f"{{{listed}}}", _NAMES.sub(joined, template))


def line_for_upgrade(line: str) -> str:
    """Returns the line for streams with a version of their own, which only an upgrade changes."""
    said = line.replace(HANDOVER, "streams take it by `streamkeeper upgrade`")
    return f"{said}, after `streamkeeper upgrade`" if USABLE in line else said


def _profiles(*folders: Path) -> dict[str, bytes]:
    every = (path for folder in folders for path in folder.glob("*.toml"))
    files = (path for path in every if path.is_file() and _NAME.fullmatch(path.stem))
    return {path.stem: path.read_bytes() for path in files}


def _syntax_error(code: dict[str, bytes]) -> str:
    """Returns the first mistake as a phrase, or ""."""
    for name, data in sorted(code.items()):
        if name.endswith(".py"):
            try:
                ast.parse(data, f"{CODE}/{name}")
            except (SyntaxError, ValueError) as problem:
                line = f", line {problem.lineno}" if isinstance(problem, SyntaxError) and problem.lineno else ""
                reason = problem.msg if isinstance(problem, SyntaxError) else str(problem)
                return f"{CODE}/{name}{line}: {reason}"
    return ""


def _problem(name: str, data: bytes) -> str:
    """Returns why the profile is broken, as a phrase, or "". Variables need not be set."""
    try:
        text = data.decode("utf-8")
        parse(name, tomllib.loads(text), placeholders(text))
    except UnicodeDecodeError:
        return "it is not UTF-8 text"
    except tomllib.TOMLDecodeError as problem:
        return f"it is not valid TOML: {problem}"
    except ProfileError as problem:
        return str(problem)
    return ""
