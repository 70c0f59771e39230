"""Profiles for the tests: the fields that every profile needs, with further fields over them."""

from typing import Any

import pytest

from handlers.profile.behaviour import Profile
from handlers.profile.checked_fields import BadProfile
from handlers.profile.parse import parse

VARIABLES = {"UPSTREAM_DEMO": "http://127.0.0.1:9000", "UPSTREAM_COUCHDB": "http://127.0.0.1:9001/db/"}
LEAST: dict[str, Any] = {"address": "https://example.org/{streamId}?q={name}", "framing": "sse"}
TOKEN: dict[str, Any] = {
    "kind": "client_credentials",
    "address": "https://auth.example/token",
    "id": "${secret:id}",
    "secret": "${secret:key}",
}
EKS = {"kind": "eks", "cluster": "prod", "region": "eu-central-1"}
TICKET: dict[str, Any] = {"address": "https://api.example/listen", "path": "$.key"}
# How a problem's sentence names a path.
PATH = 'a JSON path such as "$.meta.id" or "$.items[0]"'


def profile(**fields: Any) -> Profile:
    return parse("demo", {**LEAST, **fields}, VARIABLES)


def refusal(**fields: Any) -> str:
    """Return the one problem of a profile; None leaves a field out."""
    table = {name: value for name, value in {**LEAST, **fields}.items() if value is not None}
    with pytest.raises(BadProfile) as caught:
        parse("demo", table, VARIABLES)
    problem, *others = caught.value.problems
    assert others == []
    return problem
