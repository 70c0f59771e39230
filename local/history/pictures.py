"""Writes a picture to a file: an SVG, or a page that contains it.

Invariant: the file needs no other file and no network.
"""

from html import escape
from pathlib import Path

from local.terminal import UserError, explain_os_errors

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>
:root{{color-scheme:light dark}}body{{font:15px/1.5 system-ui,sans-serif;margin:1.5rem auto;max-width:70rem;
padding:0 1rem}}svg{{max-width:100%;height:auto}}table{{border-collapse:collapse}}td,th{{padding:.2rem .8rem;
text-align:right}}td:first-child,th:first-child{{text-align:left}}.scroll{{overflow-x:auto}}</style></head>
<body><h1>{title}</h1>
<div class="scroll">{picture}</div>
{table}</body></html>
"""


def check_path(path: Path | None) -> Path | None:
    """Returns the path; raises UserError if its ending is not that of a picture, or its folder does not exist."""
    if path is not None and path.suffix not in (".svg", ".html"):
        raise UserError(f"--picture must end in .svg or .html, not {path.name!r}.")
    if path is not None and not path.parent.is_dir():
        raise UserError(f"--picture {path} cannot be written: there is no folder {path.parent}.")
    return path


def write_picture(path: Path, picture: str, title: str, table: str = "") -> None:
    """Writes the SVG as it is, or in a page with an HTML table below it; raises UserError if that fails."""
    text = picture if path.suffix == ".svg" else _PAGE.format(title=escape(title), picture=picture, table=table)
    with explain_os_errors(f"--picture {path} cannot be written"):
        path.write_text(text, encoding="utf-8")
