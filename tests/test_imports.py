"""The rules of imports. The failure message of a test is the rule."""

import ast
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.import_graph import ALL, MODULES, ROOMS, ROOT, cycles, imported, inside, module_imports, room_imports

PURE = (
    "handlers.connection", "handlers.framing", "handlers.group", "handlers.profile", "handlers.segments",
    "handlers.values",
)  # fmt: skip
RULE = (
    "handlers/connection, handlers/framing, handlers/group, handlers/profile, handlers/segments and handlers/values.py "
    "import nothing but each other and the standard library; the rest of handlers may import them; handlers never "
    "imports local, timeline, streamkeeper or the interpreter; the interpreter imports nothing of ours; neither do "
    "timeline and streamkeeper; local may import all; no cycles, neither of modules nor of the rooms of local, and an "
    "import for types alone counts."
)


def allowed(name: str, target: str) -> bool:
    """Returns whether the rule lets module `name` import `target`."""
    if inside(name, *PURE):
        return inside(target, *PURE) or (
            target.partition(".")[0] in sys.stdlib_module_names and not inside(target, *ROOMS)
        )
    if inside(name, "handlers"):
        return not inside(target, "local", "streamkeeper", "timeline", "states_language", "pytest_states_language")
    if inside(name, "states_language", "pytest_states_language"):
        return not inside(target, "handlers", "local", "streamkeeper", "timeline")
    if inside(name, "timeline", "streamkeeper"):
        return not inside(target, *ROOMS) or inside(target, name.partition(".")[0])
    return True


def test_a_module_imports_only_what_the_rule_allows() -> None:
    """Every import of every module keeps the rule."""
    targets = ((name, target) for name, path in MODULES.items() for target in imported(name, path))
    broken = [f"{name} imports {target}" for name, target in targets if not allowed(name, target)]
    assert not broken, f"{', '.join(broken)}. The rule: {RULE}"


def test_no_chain_of_imports_leads_back() -> None:
    """The modules form no cycle, and the rooms of local form none."""
    for imports in (module_imports(), room_imports()):
        circular = cycles(imports)
        assert not circular, f"These import each other: {', '.join(circular)}. The rule: {RULE}"


def test_an_import_for_types_alone_counts(tmp_path: Path) -> None:
    """An import under `if TYPE_CHECKING` counts, and so does one in a function, so neither can hide a cycle."""
    source = "if TYPE_CHECKING:\n    from local.chaos.world import World\ndef late():\n    import local.cli\n"
    (tmp_path / "module.py").write_text(source)
    assert list(imported("local.chaos.module", tmp_path / "module.py")) == ["local.chaos.world", "local.cli"]


def public(package: str) -> list[str]:
    """The modules that a package's docstring calls public."""
    text = ast.get_docstring(ast.parse(MODULES[package].read_bytes())) or ""
    listed = text.partition("public too")[2].partition("Two packages")[0]
    return [f"{package}.{module}" for module in re.findall(r"`([a-z._]+)`", listed)]


OFFER_BY_THEMSELVES = ("states_language.server", "states_language.workbench")


def is_offered(target: str) -> bool:
    """Whether a docstring of the interpreter, or of the package that offers by itself, offers this module."""
    for package in OFFER_BY_THEMSELVES:
        if inside(target, package):
            return target == package or target in public(package)
    return target == "states_language" or inside(target, *public("states_language"))


def test_the_product_uses_what_the_interpreter_offers() -> None:
    """The product imports only a package's own names, and the modules that the interpreter's docstring calls public."""
    private = [
        f"{name} imports {target}"
        for name, path in MODULES.items()
        for target in imported(name, path)
        if inside(name, "local") and inside(target, "states_language") and not is_offered(target)
    ]
    assert not private, f"{', '.join(private)}, which the docstring of states_language does not offer"
    assert is_offered("states_language.server.sdk")
    assert not is_offered("states_language.server.machines")
    assert not is_offered("states_language.workbench.run")


def test_the_interpreters_tests_need_nothing_of_ours() -> None:
    """The interpreter's tests import nothing from outside of its folder."""
    house = ROOT / "states-language"
    tests = {
        f"{path.relative_to(house)}": path for part in ("tests", "testing") for path in (house / part).rglob("*.py")
    }
    ours = ("handlers", "local", "streamkeeper", "timeline", "bench", "tests")
    wrong = [name for name, path in tests.items() if any(inside(target, *ours) for target in imported(name, path))]
    assert not wrong, f"{', '.join(wrong)} import what lies outside of states-language/"


def names(texts: Iterable[str]) -> set[str]:
    """The distributions that are meant."""
    return {re.split(r"[^\w-]", text)[0].lower() for text in texts}


def declared(folder: Path, *extras: str) -> set[str]:
    """The distributions that a pyproject.toml names, with those of its extras."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return names(project["dependencies"] + [text for one in extras for text in project["optional-dependencies"][one]])


def group(name: str) -> set[str]:
    return names(tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"][name])


DECLARED = {
    "handlers": group("lambda") | {"boto3", "botocore"},  # the runtime of Lambda has these two
    # boto3 is made of botocore, and the wheel holds the interpreter.
    "local": declared(ROOT, "archive") | group("durable") | {"states-language", "botocore"},
    "streamkeeper": group("lambda"),
    "timeline": set[str](),
    "states_language": declared(ROOT / "states-language", "fuzz", "server", "parquet"),
    "pytest_states_language": declared(ROOT / "states-language", "pytest"),
}


@pytest.mark.parametrize("room", ROOMS)
def test_what_a_room_imports_is_declared(room: str) -> None:
    """pip installs what is imported: each package is named in pyproject.toml; the wheel has the interpreter's, too."""
    distributions = importlib.metadata.packages_distributions()
    modules = [(name, path) for name, path in MODULES.items() if inside(name, room)]
    packages = {target.partition(".")[0] for name, path in modules for target in imported(name, path)}
    packages -= {*sys.stdlib_module_names, *ROOMS}
    missing = {
        package
        for package in packages
        if not DECLARED[room] & {name.lower().replace("_", "-") for name in distributions.get(package, [])}
    }
    assert not missing, f"{room} imports {', '.join(sorted(missing))}, which pyproject.toml does not name"


def test_the_rule_can_fail() -> None:
    """Imports that the rule forbids are found, so that a green run means something."""
    assert not allowed("handlers.framing.sse", "urllib3")
    assert not allowed("handlers.connection.lease", "handlers.errors")
    assert not allowed("states_language.machine", "timeline.spans")
    assert not allowed("handlers.run.performer", "states_language.clock")
    assert not allowed("timeline.spans", "handlers.errors")
    assert not allowed("streamkeeper.api", "local.terminal")
    assert not allowed("streamkeeper.api", "handlers.errors")
    assert allowed("handlers.framing.sse", "handlers.connection.lease")
    assert allowed("handlers.profile.parse", "urllib.parse")
    assert allowed("local.service.embedded_aws", "handlers.settings")
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]


# A folder that has more is several rooms.
MOST_FILES = {"handlers": 12, "handlers/store": 20}
# In a module.
MOST_LINES = 300


def test_a_room_is_small_enough_to_know() -> None:
    """A room has a limited number of files in its root, and a module a limited number of lines."""
    counts = {folder: len([*(ROOT / folder).glob("*.py")]) for folder in MOST_FILES}
    crowded = {folder: count for folder, count in counts.items() if count > MOST_FILES[folder]}
    assert not crowded, f"{crowded}: at most {MOST_FILES}"
    lines = {name: path.read_text(encoding="utf-8").count("\n") for name, path in MODULES.items()}
    long = {name: count for name, count in lines.items() if count > MOST_LINES}
    assert not long, f"{long}: at most {MOST_LINES} lines"


# A function with its signature, up to the next line that is not indented further.
FUNCTION = re.compile(r"^( *)(?:async )?def (\w+).*\n(?:(?:\1[ )].*)?\n)*", re.MULTILINE)
LONGEST_FUNCTION = 60


def test_a_function_is_short_enough_to_read() -> None:
    """No function of the product, the benches and the tests has more than 60 lines."""
    lengths = {
        f"{name}.{found[2]}": found[0].rstrip().count("\n") + 1
        for name, path in ALL.items()
        for found in FUNCTION.finditer(path.read_text(encoding="utf-8"))
    }
    long = {name: lines for name, lines in lengths.items() if lines > LONGEST_FUNCTION}
    assert max(lengths.values()) > 50
    assert not long, f"{long}: at most {LONGEST_FUNCTION} lines"


# Ruff keeps it in Python.
MOST_COLUMNS = 120


def test_a_scripts_lines_are_not_packed() -> None:
    """No line of the packaging's scripts and of the page's files is longer than one of Python."""
    folders = [ROOT / name for name in ("packaging", "env", "handlers/console", "examples", "tests/real")]
    files = [
        path for folder in folders for ending in ("*js", "*.css", "*.html", "*.ts") for path in folder.rglob(ending)
    ]
    lines = [(path, line) for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(files) > 40
    assert [f"{path}: {line}" for path, line in lines if len(line) > MOST_COLUMNS] == []


def test_one_performer_closes_upstreams() -> None:
    """The steps of an invocation are performed in one place, whatever its ports are: see handlers/run/performer.py."""
    performers = [name for name, path in ALL.items() if "case " + "CloseUpstream" in path.read_text(encoding="utf-8")]
    assert performers == ["handlers.run.performer"]


SHARED = ("__init__.py", "command.py")


def test_a_modules_name_says_which_it_is() -> None:
    """No two modules of the product have the same name; the module of a verb is named by its folder."""
    named: dict[str, list[str]] = {}
    for name, path in MODULES.items():
        if not inside(name, "states_language", "pytest_states_language") and path.name not in SHARED:
            named.setdefault(path.name, []).append(name)
    assert not [names for names in named.values() if len(names) > 1]
