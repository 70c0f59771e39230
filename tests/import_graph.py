"""Which module imports which: of the product, of the interpreter, of the benchmarks and of the tests.

`test_imports.py` holds the rule of imports by it, and `room.py` finds the tests that a change can break. It reads the
sources and imports none of them. Invariant: an import for types alone counts, and so does one in a function.
"""

import ast
import contextlib
import json
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("handlers", "states_language", "pytest_states_language", "local", "streamkeeper", "timeline")
SOURCES = dict.fromkeys(("states_language", "pytest_states_language"), ROOT / "states-language" / "src")

Imports = Mapping[str, set[str]]


def modules(*rooms: str) -> dict[str, Path]:
    """Every module of the rooms by its dotted name."""
    found = {}
    for room in rooms:
        source = SOURCES.get(room, ROOT)
        for path in sorted((source / room).rglob("*.py")):
            parts = path.relative_to(source).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules(*ROOMS)
ALL = {**MODULES, **modules("bench", "tests")}
# What the sources had when they were last read, by path: parsing all of them takes six seconds of CPU.
KEPT = ROOT / ".streamkeeper-build" / "imports.json"
_NEW = "new"


@cache
def imported(name: str, path: Path) -> tuple[str, ...]:
    """The dotted names a module imports, under `if TYPE_CHECKING` or in a function too; `from package import module`
    counts as the module where there is one.
    """
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = []
    for level, base, names in _statements_of(path):
        outer = package.split(".")[: len(package.split(".")) - level + 1] if level else []
        base = ".".join([*outer, *([base] if base else [])])
        wholes = [f"{base}.{one}".lstrip(".") for one in names]
        found += [whole if whole in ALL or not base else base for whole in wholes]
    return tuple(found)


Statement = tuple[int, str, list[str]]
"""An import: how many dots stand before it, what it imports from, "" for none, and the names."""


def _statements_of(path: Path) -> list[Statement]:
    """The imports of a source, read anew where the file is another than the one that was kept."""
    about = path.stat()
    stamp, kept = [about.st_mtime_ns, about.st_size], _kept().get(str(path))
    if kept is None or kept[0] != stamp:
        kept = _kept()[str(path)] = _kept()[_NEW] = [stamp, list(_parsed(path))]
    statements: list[Statement] = kept[1]
    return statements


@cache
def _kept() -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        kept: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
        return kept
    return {}


def keep() -> None:
    """Keeps what was read of the project's sources for the next process, where it has read something anew."""
    if _kept().pop(_NEW, None) is None:
        return
    KEPT.parent.mkdir(exist_ok=True)
    new = KEPT.with_suffix(f".{os.getpid()}")
    ours = {path: one for path, one in _kept().items() if path.startswith(str(ROOT))}
    new.write_text(json.dumps(ours), encoding="utf-8")
    new.replace(KEPT)


def _parsed(path: Path) -> Iterator[Statement]:
    for node in _statements(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield 0, "", [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or "", [alias.name for alias in node.names]


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements below a module; an import lies in none of the expressions, which are nine in ten nodes."""
    ahead = deque([tree])
    while ahead:
        yield (node := ahead.popleft())
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            ahead.extend(getattr(node, part, ()))


def inside(name: str, *packages: str) -> bool:
    """Whether a dotted name is one of the packages or lies in one."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def with_packages(name: str, target: str) -> Iterator[str]:
    """The module `target` and the packages that are run before it; `name` itself lies in those that have begun."""
    parts = target.split(".")
    packages = (".".join(parts[:length]) for length in range(1, len(parts)))
    yield from (package for package in packages if not inside(name, package))
    yield target


def module_imports(among: Mapping[str, Path] = MODULES) -> dict[str, set[str]]:
    """The modules that each module runs before itself."""
    found = {
        name: {
            needed
            for target in imported(name, path)
            for needed in with_packages(name, target)
            if needed in among and needed != name
        }
        for name, path in among.items()
    }
    keep()
    return found


def room_imports() -> dict[str, set[str]]:
    """The rooms of local that each of them imports; a module that lies in none is a room by itself."""
    rooms: dict[str, set[str]] = {}
    for name, path in MODULES.items():
        if inside(name, "local"):
            room = ".".join(name.split(".")[:2])
            targets = (".".join(target.split(".")[:2]) for target in imported(name, path) if inside(target, "local"))
            rooms.setdefault(room, set()).update(target for target in targets if target not in ("local", room))
    return rooms


def cycles(imports: Imports) -> list[str]:
    """The names from which an import chain leads back to themselves."""
    circular = []
    for name in imports:
        reached: set[str] = set()
        ahead = list(imports[name])
        while ahead:
            target = ahead.pop()
            if target not in reached:
                reached.add(target)
                ahead.extend(imports[target])
        if name in reached:
            circular.append(name)
    return circular


# --- what no import shows ---------------------------------------------------------------------------------------------

# What these modules of tests run by a process of its own stands for: the command, and each Lambda function.
_STARTS_A_SERVICE = ("tests.harness", "tests.projects", "tests.deploy.conftest")
# A module that is loaded by its name, or one of a package: "handlers.control", f"handlers.profile.{module}".
_NAMED = re.compile(rf"""["']((?:{"|".join(ROOMS)})(?:\.\w+)+)""")
# Who reads the files of a folder that holds no Python.
READERS = {
    "statemachines": ("local.stages",),
    "env": ("local.stages",),
    "packaging": ("tests.deploy.conftest",),
    "docs": ("tests.test_docs", "tests.real.test_readme"),
}


def is_test(name: str) -> bool:
    """Whether a module holds tests."""
    return name.rpartition(".")[2].startswith("test_")


def functions() -> set[str]:
    """The modules that Lambda calls, as packaging/functions.cjs names them."""
    text = (ROOT / "packaging" / "functions.cjs").read_text(encoding="utf-8")
    return {path.replace("/", ".") for path in re.findall(r"'(handlers/[\w/]+)\.handler'", text)}


@cache
def importers() -> dict[str, set[str]]:
    """Who can be broken by each module: whoever imports it, starts it, or reads the folder; tests have a conftest."""
    found: dict[str, set[str]] = {}
    for name, targets in module_imports(ALL).items():
        named = _NAMED.findall(ALL[name].read_text(encoding="utf-8"))
        for target in {*targets, *(one for text in named for one in ALL if inside(one, text))}:
            found.setdefault(target, set()).add(name)
    for name in _STARTS_A_SERVICE:
        for target in ("local.cli", *functions()):
            found.setdefault(target, set()).add(name)
    for folder, readers in READERS.items():
        found.setdefault(folder, set()).update(readers)
    for name in ALL:
        package, _, last = name.rpartition(".")
        # What the whole suite shares says nothing about a room.
        if last == "conftest" and package != "tests":
            found.setdefault(name, set()).update(one for one in ALL if one.startswith(f"{package}.") and is_test(one))
    return found


def distances(begin: Iterable[str], among: Imports) -> dict[str, int]:
    """Over how many imports each module is reached from those that were changed, themselves 0; unreached are none."""
    reached = dict.fromkeys(begin, 0)
    ahead = list(reached)
    for name in ahead:
        for importer in sorted(among.get(name, ())):
            if importer not in reached:
                reached[importer] = reached[name] + 1
                ahead.append(importer)
    return reached
