"""The site of the documentation: each page has one place in it, and the API's reference says what the document says."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from handlers.api.openapi.document import document
from local import site_pages
from local.checkout import ROOT
from local.site_pages import REFERENCE

DOORS = ["Streamkeeper", "Try", "Deploy", "Operate", "Change", "Why trust it"]


def places(nav: list[Any]) -> Iterator[str]:
    """The pages of a part of the navigation, in their order."""
    for entry in nav:
        (target,) = entry.values()
        if isinstance(target, str):
            yield target
        else:
            yield from places(target)


def test_every_page_has_one_place_and_every_place_a_page() -> None:
    """But for the decisions, which their list leads to."""
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2])
    assert [name for entry in nav for name in entry] == DOORS
    decisions = re.compile(r"docs/decisions/\d{4}-.*")
    pages = {REFERENCE, *(name for name in site_pages.pages() if not decisions.fullmatch(name))}
    named = list(places(nav))
    twice = {name for name in named if named.count(name) > 1}
    assert (pages - set(named), set(named) - pages, twice) == (set(), set(), set()), "not in mkdocs.yml, no page, twice"


def test_the_reference_has_every_route_parameter_answer_and_field(tmp_path: Path) -> None:
    """By name, and each example that is JSON as it is; what a page links to lies beside it."""
    site_pages.lay_out(tmp_path)
    text = (tmp_path / REFERENCE).read_text(encoding="utf-8")
    described = document()
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            part = text.partition(f"## {method.upper()} {path}\n")[2].partition("\n## ")[0]
            wanted = [f"| `{one['name']}` |" for one in operation["parameters"]]
            wanted += [f"**{status}" for status in operation["responses"]]
            wanted += [name for answer in operation["responses"].values() for name in answer.get("content", {})]
            missing = [name for name in wanted if name not in part and "problem" not in name]
            assert (method, path, missing) == (method, path, [])
    for name, schema in described["components"]["schemas"].items():
        part = text.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert [field for field in schema.get("properties", ()) if f"| `{field}`" not in part] == []
    assert '"verdict": "Connected at least' in text
    assert (tmp_path / "docs" / "console-phone.png").is_file()


@pytest.mark.long
def test_the_site_is_made_and_no_link_is_broken() -> None:
    """`make docs` ends with 0: mkdocs is strict, so a link or a fragment that leads nowhere ends it."""
    made = subprocess.run(
        ["make", "docs", f"VENV={sys.prefix}", f"PYTHON={sys.executable}"],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (made.returncode, made.stdout.splitlines()[-1:]) == (0, ["site/index.html"]), made.stderr
    page = (ROOT / "site" / "docs" / "api-reference.html").read_text(encoding="utf-8")
    assert "GET /connections/{streamId}/gaps" in page
    assert (ROOT / "site" / "search" / "search_index.json").stat().st_size > 100_000
