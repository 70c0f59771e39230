"""The site of the documentation: the API's reference agrees with the OpenAPI document, and no link is broken."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from handlers.api.openapi.document import document
from local import site_pages
from local.checkout import ROOT
from local.site_pages import REFERENCE


def test_the_reference_has_every_route_parameter_answer_and_field(tmp_path: Path) -> None:
    """Each is named, and each example in JSON is unchanged; files that a page links to lie beside it."""
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
    assert '"verdict": "Connected 57 min' in text
    assert (tmp_path / "docs" / "console-phone.png").is_file()


@pytest.mark.long
def test_the_site_is_made_and_no_link_is_broken() -> None:
    """`make docs` ends with 0: mkdocs is strict, so a link or a fragment that leads nowhere would fail it."""
    command = ["make", "docs", f"VENV={sys.prefix}", f"PYTHON={sys.executable}"]
    made = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    assert (made.returncode, made.stdout.splitlines()[-1:]) == (0, ["site/index.html"]), made.stderr
    page = (ROOT / "site" / "docs" / "api-reference.html").read_text(encoding="utf-8")
    assert "GET /connections/{streamId}/gaps" in page
    assert (ROOT / "site" / "search" / "search_index.json").stat().st_size > 100_000
    # The search of a page that is opened as a file needs it; nothing is loaded from elsewhere.
    assert [
        name for name in re.findall(r'<script src="([^"]+)"', page) if not (ROOT / "site" / "docs" / name).is_file()
    ] == []
