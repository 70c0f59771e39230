"""Checks a Terraform module without Terraform: its syntax as JSON against the schema of the provider, and its names.

`terraform.schema.json` is an extract of the provider's own schema for the resources used; hcl2 reads the files. Only
Terraform can evaluate expressions.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

SCHEMA = json.loads(Path(__file__).with_name("terraform.schema.json").read_text())
# What every resource takes besides; and what hcl2 adds.
META = ("count", "for_each", "depends_on", "provider", "lifecycle", "provisioner")
OF_THE_READER = ("__is_block__", "__comments__")
PLACE = re.compile(r"(?<![\w.])(var|local|module|data\.\w+|aws_\w+)\.(\w+)(?:\[[^]]*\])?(?:\.(\w+))?")


def plain(value: Any) -> Any:
    """Return what hcl2 read, without its quotation marks and its own marks."""
    if isinstance(value, dict):
        return {name.strip('"'): plain(one) for name, one in value.items() if name not in OF_THE_READER}
    if isinstance(value, list):
        return [plain(one) for one in value]
    is_quoted = isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == '"'
    return value[1:-1] if is_quoted else value


def blocks(files: list[Any], kind: str) -> Iterator[tuple[str, Any]]:
    """Return the blocks of a kind as `name`, or `type.name` if they have two labels, each with its content."""
    for found in (one for file in files for one in file.get(kind, [])):
        ((label, inner),) = found.items()
        if kind in ("resource", "data"):
            ((name, inner),) = inner.items()
            label = f"{'data.' * (kind == 'data')}{label}.{name}"
        yield label, inner


def problems(files: list[Any], modules: dict[str, list[Any]] | None = None) -> list[str]:
    """Return a sentence for each problem; `modules` has the files of the called modules, by the name of the call."""
    files, found = plain(files), []
    made = {name: inner for kind in ("resource", "data") for name, inner in blocks(files, kind)}
    for name, inner in made.items():
        kind = name.rpartition(".")[0]
        if kind not in SCHEMA["takes"]:
            found.append(f"{name}: no type {kind} is known")
            continue
        checked = {"$defs": SCHEMA["$defs"], **SCHEMA["takes"][kind]}
        given = {key: value for key, value in inner.items() if key not in META}
        found += [f"{name}: {one.message}" for one in Draft202012Validator(checked).iter_errors(given)]
    called = {name: plain(of) for name, of in (modules or {}).items()}
    known = {
        "var": {name for name, _ in blocks(files, "variable")},
        "local": {name for file in files for one in file.get("locals", []) for name in one},
        "module": set(called),
    }
    for kind, name, attribute in PLACE.findall(json.dumps(files)):
        if kind in known:
            has = {one for one, _ in blocks(called[name], "output")} if name in called else {attribute}
            is_known = name in known[kind] and (kind != "module" or attribute in has)
        else:
            is_known = f"{kind}.{name}" in made and (not attribute or attribute in SCHEMA["has"].get(kind, ()))
        if not is_known:
            found.append(f"{'.'.join(filter(None, (kind, name, attribute)))} is nowhere declared")
    for name, given in blocks(files, "module"):
        takes = dict(blocks(called[name], "variable"))
        found += [f"module.{name}: {one} is no variable" for one in given if one not in takes and one != "source"]
        needs = {one for one, of in takes.items() if "default" not in of}
        found += [f"module.{name}: {one} is missing" for one in sorted(needs - set(given))]
    return found
