"""`make test ROOM=store`: the tests that a change in that room can break, those nearest to it first, within a minute.

A room is a package or a module of the product (`store`, `handlers/store`, `local/chaos`, `timeline`) or one of the
folders that `import_graph.READERS` names. Its tests are those that reach it by the graph of imports, where a test that
runs the project in a process of its own reaches the command and each function. A change is most likely seen where the
fewest imports lie between, so these tests run first, as many files as a minute is enough for on two cores. What that
leaves is counted, and `make test` runs it.

Invariant: no test that the graph reaches is left out without being counted.
"""

import sys
import time
from itertools import accumulate
from typing import Any

import pytest

from handlers.api.verdict import plural
from tests.import_graph import ALL, MODULES, READERS, ROOT, distances, importers, inside, is_test

WITHIN_S, SERVICE_S = 40.0, 15.0
"""Of a minute; the rest is for the start and for the last of the tests. Those that share the local run begin so much
earlier: it has to be started for them, and ended."""
MOST_LINES = 12_000
"""Of the files that are collected, which takes two processes some ten seconds; one file always is."""


def rooms() -> list[str]:
    """Returns the rooms that exist, each as its folder."""
    packages = {name for name, path in MODULES.items() if path.name == "__init__.py"}
    return sorted({name.replace(".", "/") for name in packages} | set(READERS))


def named(word: str) -> str:
    """Returns the dotted name of a room; raises ValueError with a sentence if no room has the name, or several do."""
    name = word.strip("/").removesuffix(".py").removeprefix("states-language/src/").replace("/", ".")
    known = {*MODULES, *(room.replace("/", ".") for room in rooms())}
    found = [name] if name in known else sorted(one for one in known if name and one.endswith(f".{name}"))
    # `run` is the folder handlers/run, though modules have that name too.
    if len(folders := [one for one in found if one not in MODULES or MODULES[one].name == "__init__.py"]) == 1:
        found = folders
    if len(found) > 1:
        raise ValueError(f"ROOM={word} may be {' or '.join(one.replace('.', '/') for one in found)}: say which.")
    if not found:
        raise ValueError(f"There is no room {word}; there are {', '.join(rooms())}, and each module in them.")
    return found[0]


def changed(word: str) -> list[str]:
    """Returns the modules of a room, or the folder itself if it holds no Python."""
    name = named(word)
    return [one for one in MODULES if inside(one, name)] or [name]


def files(word: str) -> list[str]:
    """Returns the files of tests that a change in the room can break, the nearest first."""
    folder, _, last = f"tests.{named(word)}".rpartition(".")
    own = (f"{folder}.{last}.", f"{folder}.test_{last}")
    near = distances(changed(word), importers())
    found = sorted((not name.startswith(own), steps, name) for name, steps in near.items() if is_test(name))
    return [str(ALL[name].relative_to(ROOT)) for *_, name in found]


def nearest(found: list[str]) -> list[str]:
    """Returns the first of the files, as many as fit into a minute."""
    texts = [(ROOT / file).read_text(encoding="utf-8") for file in found]
    lines = list(accumulate(text.count("\n") for text in texts))
    return found[: max(1, sum(until <= MOST_LINES for until in lines))]


def main(argv: list[str]) -> int:
    """Runs pytest for a room; the words after its name are pytest's."""
    word, *more = argv
    try:
        found = files(word)
    except ValueError as mistake:
        print(mistake, file=sys.stderr)
        return 2
    if not found:
        print(f"No test reaches {word}.", file=sys.stderr)
        return 2
    near = nearest(found)
    until = [f"--until={time.time() + WITHIN_S}", f"--farther={len(found) - len(near)}"]
    return int(pytest.main(["-p", "tests.room", *until, *more, *near]))


# --- the plugin -------------------------------------------------------------------------------------------------------


class Minute:
    """Leaves out tests that have not begun in time; `farther` files were not collected."""

    def __init__(self, until_s: float, farther: int) -> None:
        self._until_s, self._farther = until_s, farther
        self._left: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skips a test that comes too late, before any of its fixtures is set up, and counts it."""
        if time.time() >= self._until_s - (SERVICE_S if "local_run" in getattr(item, "fixturenames", ()) else 0):
            self._left.append(item.nodeid)
            pytest.skip("the minute is over")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hands over what this process has left out."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["left"] = self._left

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Takes what a process of xdist has left out."""
        self._left += getattr(node, "workeroutput", {}).get("left", [])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Counts what was left out."""
        files = len({one.partition("::")[0] for one in self._left})
        late = f"{plural(len(self._left), 'test')} of {plural(files, 'file')}" if self._left else ""
        farther = f"all of {plural(self._farther, 'file')} farther away" if self._farther else ""
        if late or farther:
            both = " and ".join(filter(None, (late, farther)))
            terminalreporter.write_line(f"LEFT OUT {both}: `make test` runs them")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option."""
    parser.addoption("--until", type=float, default=0.0, help="begin no test after this Unix time")
    parser.addoption("--farther", type=int, default=0, help="how many files of a room's tests are left out")


def pytest_configure(config: pytest.Config) -> None:
    """Watches the time in each process."""
    if config.option.until:
        config.pluginmanager.register(Minute(config.option.until, config.option.farther))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
