"""`python -m local.site_pages FOLDER`: lays out the pages for the site that `make docs` makes.

Pages keep their places in the project, so a link leads to the same file on GitHub and on the site. Linked files
(pictures, sources) are copied too, and the reference of the HTTP API is written from its OpenAPI document. Invariant:
only FOLDER is changed, and its former content is removed.
"""

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from handlers.api.openapi.document import document
from local.checkout import ROOT

FOLDERS = ("", "docs/**/", "env/", "examples/", "statemachines/", "states-language/", "states-language/docs/**/")
REFERENCE = "docs/api-reference.md"
_LINK = re.compile(r"\]\(([^)#\s]+)")


def pages() -> list[str]:
    """The pages of the project, by path from its root."""
    return sorted({path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in ROOT.glob(f"{folder}*.md")})


def lay_out(folder: Path) -> None:
    """Fills the folder with the pages, the files that they link to, and the reference."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in pages():
        text = (ROOT / name).read_text(encoding="utf-8")
        _write(folder / name, text)
        for link in _LINK.findall(text):
            linked = (ROOT / name).parent / link
            if "://" not in link and linked.is_file() and not link.endswith(".md"):
                target = folder / linked.resolve().relative_to(ROOT.resolve())
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(linked, target)
    _write(folder / REFERENCE, "\n".join(reference(document())))


def reference(described: dict[str, Any]) -> Iterator[str]:
    """The lines of the API's reference: each route with its parameters, answers and examples, then each object."""
    yield from ("# API reference", "", "Written from `/openapi.json`; [the API](api.md) explains it.", "")
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            yield from (f"## {method.upper()} {path}", "", f"{operation['summary']}.", "")
            yield from _parameters(operation["parameters"])
            yield from _bodies("Request", operation.get("requestBody", {}))
            for status, answer in operation["responses"].items():
                yield from _answer(status, answer)
    for name, schema in described["components"]["schemas"].items():
        yield from (f"## {name}", "")
        if text := schema.get("description", ""):
            yield from (f"{text}{'' if text.endswith('.') else '.'}", "")
        yield from _fields(schema)


def _parameters(parameters: list[dict[str, Any]]) -> Iterator[str]:
    if parameters:
        yield from ("| parameter | in | value | meaning |", "|---|---|---|---|")
    for one in parameters:
        required = ", required" if one["required"] else ""
        yield f"| `{one['name']}` | {one['in']}{required} | {schema_in_words(one['schema'])} | {one['description']} |"
    yield ""


def _answer(status: str, answer: dict[str, Any]) -> Iterator[str]:
    headers = "; ".join(f"`{name}`: {header['description']}" for name, header in answer.get("headers", {}).items())
    is_problem = any("problem" in content for content in answer.get("content", {}))
    if not is_problem:
        yield from _bodies(f"{status}: {answer['description']}", answer)
    else:
        yield from (f"**{status}**: {answer['description']} ([Problem](#problem))", "")
    yield from (headers, "") if headers else ()


def _bodies(title: str, body: dict[str, Any]) -> Iterator[str]:
    if body:
        yield from (f"**{title}**", "")
    for content, one in body.get("content", {}).items():
        yield from (f"`{content}`: {schema_in_words(one['schema'])}", "")
        if (shown := one.get("example")) is not None:
            text = shown if isinstance(shown, str) else json.dumps(shown, indent=2, ensure_ascii=False)
            yield from ("```json" if "json" in content else "```", text.rstrip("\n"), "```", "")


def _fields(schema: dict[str, Any]) -> Iterator[str]:
    parts = [schema, *schema.get("allOf", ())]
    properties = {name: one for part in parts for name, one in part.get("properties", {}).items()}
    required = {name for part in parts for name in part.get("required", ())}
    if not properties:
        yield from (schema_in_words(schema), "")
        return
    yield from ("| field | value | meaning |", "|---|---|---|")
    for name, one in properties.items():
        more = "" if name in required else " (optional)"
        yield f"| `{name}`{more} | {schema_in_words(one)} | {one.get('description', '')} |"
    yield ""


def schema_in_words(schema: dict[str, Any]) -> str:
    """The possible values in words: `text or null`, `1 to 1000`, `[Gap](#gap), several`."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for joined in ("anyOf", "oneOf"):
        if joined in schema and "type" not in schema:
            return " or ".join(dict.fromkeys(schema_in_words(one) for one in schema[joined]))
    if "const" in schema or "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema.get("enum", [schema.get("const")]))
    types = schema.get("type", "any value")
    return " or ".join(_type_in_words(one, schema) for one in ([types] if isinstance(types, str) else types))


def _type_in_words(name: str, schema: dict[str, Any]) -> str:
    if name == "array":
        return f"{schema_in_words(schema.get('items', {}))}, several"
    if name == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"an object of {schema_in_words(schema['additionalProperties'])}"
    if name == "object":
        return ", ".join(["an object", *(f"`{one}`" for one in schema.get("properties", ()))])
    if name in ("integer", "number") and "maximum" in schema:
        return f"{schema.get('minimum', 0)} to {schema['maximum']}"
    words = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}
    return "an instant" if schema.get("format") == "date-time" and name == "string" else words.get(name, name)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    lay_out(Path(sys.argv[1]))
