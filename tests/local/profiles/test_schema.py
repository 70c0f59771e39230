"""The JSON Schema of profiles and the parser agree."""

import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.profile.addresses import ProfileError
from handlers.profile.parse import parse
from local.profiles import profile_files, schema
from tests import shipped
from tests.local.support import PROJECT

FILES = sorted(shipped.files())
VALIDATOR = jsonschema.Draft7Validator(schema.profile_schema())
BASE = {"address": "https://upstream.example/x", "framing": "sse"}


def is_parsed(table: dict[str, Any]) -> bool:
    """Returns whether the parser accepts the profile."""
    try:
        parse("p", table, {})
    except ProfileError:
        return False
    return True


def test_the_schema_file_is_up_to_date() -> None:
    """The file is as `python -m local.profiles.schema` writes it, and a valid schema."""
    file = PROJECT / "env" / schema.FILE
    assert file.read_text(encoding="utf-8") == schema.schema_text()
    jsonschema.Draft7Validator.check_schema(json.loads(schema.schema_text()))


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_each_shipped_profile_passes_and_names_the_schema(file: Path) -> None:
    """Each shipped profile is valid; its first line is the directive that editors read, with the path of the schema."""
    text = file.read_text(encoding="utf-8")
    directive, _, place = text.splitlines()[0].partition(" ")
    assert (directive, (file.parent / place).resolve()) == ("#:schema", (PROJECT / "env" / schema.FILE).resolve())
    table = tomllib.loads(text)
    parse(file.stem, table, profile_files.placeholders(text))
    VALIDATOR.validate(table)


SIMPLE = {
    name: rule
    for name, rule in schema.profile_schema()["properties"].items()
    if name not in ("address", "framing") and ({"enum", "minimum", "exclusiveMinimum"} & set(rule) or "type" in rule)
}
VALUES = st.one_of(
    st.booleans(), st.integers(-3, 90_000), st.floats(-1, 4_000), st.text(max_size=4), st.just([]), st.just({}),
    st.sampled_from([one for rule in SIMPLE.values() for one in rule.get("enum", [])]),
    st.sampled_from([bound + by for rule in SIMPLE.values() for bound in (rule.get("maximum", 0),) for by in (0, 1)]),
)  # fmt: skip


@given(st.sampled_from(sorted(SIMPLE)), VALUES)
def test_the_schema_accepts_each_value_that_the_parser_accepts(name: str, value: Any) -> None:
    """For any field with any value: if the parser accepts the profile, so does the schema."""
    table = BASE | {name: value}
    if is_parsed(table):
        assert VALIDATOR.is_valid(table), (name, value)


BOUNDED = sorted(name for name, rule in SIMPLE.items() if {"maximum", "enum"} & set(rule))


@given(st.sampled_from(BOUNDED), VALUES)
def test_the_parser_names_each_field_that_the_schema_refuses(name: str, value: Any) -> None:
    """If the schema refuses a value by its bound or choices, the parser refuses it too and names the field."""
    table = BASE | {name: value}
    if not VALIDATOR.is_valid(table):
        with pytest.raises(ProfileError, match=name):
            parse("p", table, {})


def test_a_misspelt_field_is_refused() -> None:
    """The schema refuses a misspelt field as the parser does, so that an editor marks it."""
    wrong: dict[str, Any]
    for wrong in ({"framming": "sse"}, {"resume": {"headr": "X"}}, {"end": {"dat": "x"}}, {"backoff": {"htp": {}}}):
        assert not VALIDATOR.is_valid(BASE | wrong)
        assert not is_parsed(BASE | wrong)
