"""Names in the pages exist, and the pages stay readable: short lines, a short README, every decision listed."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from handlers.connection.evidence import CURSOR_EXPIRED, CURSOR_UNKNOWN, UNRECORDED
from handlers.connection.spending import OVER_BUDGET
from local.cli import main
from local.site_pages import REFERENCE, pages

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / name for name in pages()]
PROSE_COLUMNS = 99
SOURCE = ROOT / "states-language" / "src"
ROOMS = ("handlers", "local", "streamkeeper", "timeline", "states-language", "bench", "tests")
NAMES = {path.name for room in ROOMS for path in (ROOT / room).rglob("*.py")}
README_LINES = 130
# The doors of the site.
DOORS = ["Streamkeeper", "Try", "Deploy", "Operate", "Change", "Why trust it"]
DECISIONS = ROOT / "docs" / "decisions"
MOST_DECISIONS, PAGE_WORDS = 45, 650
MOST_WORDS = 35_000
# What a page may name although no checkout has it: the reader writes it, or a program does.
NOT_IN_A_CHECKOUT = re.compile(r"env/streams/(prices|<profile>|<name>)\.toml|.*[<*{].*")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PATH = re.compile(r"`((?:[\w<>*{},.-]+/)+[\w<>*{}.-]+\.(?:py|md|yml|yaml|toml|cjs|sh|json|txt))(?::\w+)?`")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
NAME = re.compile(r"`(\w+\.py)`")
MODULE = re.compile(r"python -m ((?:[a-z_]+\.)+[a-z_]+)")
TARGET = re.compile(r"`make ([a-z-]+)")
DECISION = re.compile(r"(?:\b[Dd]ecisions?[\s#*]+\[?|\bdecisions/)(\d{1,4})\b")
CODE = {".py", ".yml", ".toml", ".cjs", ".js", ".mjs", ".css", ".sh"}
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Yields the lines of a page with their numbers, except tables, code and headings."""
    code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code and not line.lstrip().startswith(("|", "#")) and not line.startswith("    "):
            yield number, line


def anchors(page: Path) -> set[str]:
    """The fragments of a page's headings, as GitHub makes them."""
    titles = HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken(page: Path) -> Iterator[str]:
    """The links, paths, modules and targets of a page that lead nowhere."""
    text = page.read_text(encoding="utf-8")
    for link in LINK.findall(text):
        path, _, fragment = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (fragment and fragment not in anchors(target)):
            yield link
    for path in PATH.findall(text):
        # A path is said from the project's root, or from the folder that the page describes.
        places = (ROOT, page.parent, page.parent.parent)
        if not NOT_IN_A_CHECKOUT.fullmatch(path) and not any((place / path).exists() for place in places):
            yield path
    for path, test in TEST.findall(text):
        if not (ROOT / path).exists() or f"\ndef {test}(" not in (ROOT / path).read_text(encoding="utf-8"):
            yield f"{path}::{test}"
    yield from (name for name in NAME.findall(text) if name not in NAMES)
    for module in MODULE.findall(text):
        file = module.replace(".", "/")
        files = (ROOT / f"{file}.py", *(SOURCE / f"{file}{end}" for end in (".py", "/__main__.py")))
        if not any(one.exists() for one in files):
            yield module
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")
    yield from (f"make {target}" for target in TARGET.findall(text) if f"\n{target}:" not in targets)


def test_each_link_and_name_in_a_page_exists() -> None:
    """Every relative link with its fragment, every file, test and module, and every `make` target of a page exists."""
    assert [f"{page.relative_to(ROOT)}: {name}" for page in PAGES for name in broken(page)] == []


def test_each_row_of_what_an_upgrade_may_change_names_its_test() -> None:
    """Each row of the table in docs/upgrade.md names a test."""
    _, _, table = (ROOT / "docs" / "upgrade.md").read_text(encoding="utf-8").partition("| the test |\n")
    rows = [line for line in table.splitlines()[1:] if line.startswith("|")]
    assert [TEST.search(row) is not None for row in rows] == [True] * 14


def test_each_cause_of_a_gap_is_in_its_table() -> None:
    """The table in docs/api.md has each cause; an end before the answer, and the stream's own, cause no gap."""
    none = {"ended", "refused", "unreadable", "unreachable", "no_token", "no_ticket", "closed_here"}
    sources = [path for room in ("connection", "upstream") for path in (ROOT / "handlers" / room).glob("*.py")]
    calls = [node for path in sources for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    ends = {
        str(word.value)
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id in ("End", "Closed")
        for word in call.args
        if isinstance(word, ast.Constant) and re.fullmatch("[a-z_]+", str(word.value))
    }
    causes = ends - none | {CURSOR_EXPIRED, CURSOR_UNKNOWN, UNRECORDED, OVER_BUDGET}
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert [cause for cause in sorted(causes) if f"`{cause}`" not in page.partition("| `cause` |")[2]] == []


def test_lines_of_prose_end_before_column_100() -> None:
    """Each line of prose ends before column 100; tables, code and headings may be longer."""
    lines = ((page, *line) for page in PAGES for line in prose(page.read_text(encoding="utf-8")))
    long = [f"{page.relative_to(ROOT)}:{number}: {line}" for page, number, line in lines if len(line) > PROSE_COLUMNS]
    assert long == []


def test_no_command_of_a_page_has_a_comment_behind_it() -> None:
    """An interactive zsh takes # for a word, so `make run # ...` would be another command there."""
    behind = re.compile(r"^ *(?:make|curl|npx|aws|(?:\.venv/bin/)?streamkeeper) .* #.*$", re.MULTILINE)
    assert [line for page in PAGES for line in behind.findall(page.read_text(encoding="utf-8"))] == []


def test_no_code_is_indented_after_a_list() -> None:
    """Markdown takes indented code after a list for a paragraph of the last point, so the code must be fenced."""
    behind = re.compile(r"^(?:-|\d+\.) (?:.+\n)+\n {4}\S.*", re.MULTILINE)
    assert [found for page in PAGES for found in behind.findall(page.read_text(encoding="utf-8"))] == []


def test_a_broken_page_is_noticed(tmp_path: Path) -> None:
    """A link, a fragment, a path, a test, a module and a target that lead nowhere are each named."""
    page = tmp_path / "page.md"
    page.write_text(
        "# One\n[a](gone.md) [b](page.md#two) [c](#one) [d](https://gone.example)\n"
        "`handlers/gone.py` `handlers/errors.py` `gone.py` `errors.py`\n"
        "`python -m bench.gone` `python -m bench.handover` `make gone` `make run`\n"
        "`tests/test_docs.py::test_gone` `tests/test_docs.py::test_the_readme_is_short`\n"
    )
    gone = ["handlers/gone.py", "tests/test_docs.py::test_gone", "gone.py", "bench.gone", "make gone"]
    assert list(broken(page)) == ["gone.md", "page.md#two", *gone]


def test_the_readme_is_short() -> None:
    """README has at most 130 lines."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= README_LINES


def test_the_readme_shows_what_a_replay_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """README's picture is the replay of tests/timelines/handover.yml, 84 columns wide."""
    assert main(["replay", str(ROOT / "tests" / "timelines" / "handover.yml"), "--width", "84"]) == 0
    printed = capsys.readouterr().out.splitlines()
    first = next(number for number, line in enumerate(printed) if line.startswith("     A "))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "\n".join(printed[first : first + 4]) in readme


def test_the_pages_have_few_words() -> None:
    """The pages have 35,000 words at most (`wc -w`), without decisions, changelog, machines and the interpreter."""
    counted = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "env/README.md")]
    counted += [*(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.md")]
    words = {path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").split()) for path in counted}
    assert sum(words.values()) <= MOST_WORDS, sorted(words.items(), key=lambda row: -row[1])[:9]


def test_every_decision_is_listed() -> None:
    """Each decision is listed once, by the title of its heading; there are few, and each fits on a page."""
    rows = re.compile(r"^\| (\d{4}) \| \[(.*?)\]\((.*?)\) \|", re.MULTILINE)
    headings = [
        (path.name[:4], path.read_text("utf-8").partition("\n")[0].partition(". ")[2], path.name)
        for path in sorted(DECISIONS.glob("[0-9]*.md"))
    ]
    assert sorted(rows.findall((DECISIONS / "README.md").read_text("utf-8"))) == headings
    assert len({number for number, *_ in headings}) == len(headings) <= MOST_DECISIONS
    words = {name: len((DECISIONS / name).read_text("utf-8").split()) for *_, name in headings}
    assert {name: count for name, count in words.items() if count > PAGE_WORDS} == {}


def test_a_decision_that_is_named_exists() -> None:
    """Each decision that code, tests, settings or pages name by its number exists."""
    known = {int(path.name[:4]) for path in DECISIONS.glob("[0-9]*.md")}
    rooms = (ROOT / room for room in (*ROOMS, "statemachines", "packaging", "env"))
    code = [path for room in rooms for path in room.rglob("*") if path.suffix in CODE]
    gone = [
        f"{path.relative_to(ROOT)}: {number}"
        for path in [*PAGES, *ROOT.glob("*.yml"), *code]
        for number in DECISION.findall(path.read_text(encoding="utf-8"))
        if int(number) not in known
    ]
    assert gone == []


def test_the_files_in_long_toml_exist() -> None:
    """Each file and folder that tests/long.toml names exists."""
    rows = tomllib.loads((ROOT / "tests" / "long.toml").read_text(encoding="utf-8"))["left_out"]
    named = re.findall(
        r"`((?:tests|states-language)/[\w/.-]+)`", " ".join(text for row in rows for text in row.values())
    )
    assert [path for path in named if not (ROOT / path).exists()] == []


def places(nav: list[Any]) -> Iterator[str]:
    """The pages of a part of the navigation, in their order."""
    for entry in nav:
        (target,) = entry.values()
        if isinstance(target, str):
            yield target
        else:
            yield from places(target)


def test_every_page_has_one_place_in_the_navigation() -> None:
    """Each page has one place in the navigation, except the decisions, to which their list leads."""
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2])
    assert [name for entry in nav for name in entry] == DOORS
    decisions = re.compile(r"docs/decisions/\d{4}-.*")
    wanted = {REFERENCE, *(name for name in pages() if not decisions.fullmatch(name))}
    named = list(places(nav))
    twice = {name for name in named if named.count(name) > 1}
    assert (wanted - set(named), set(named) - wanted, twice) == (set(), set(), set()), "lacking, no page, twice"
