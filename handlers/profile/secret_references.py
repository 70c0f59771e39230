"""Recognises references to secrets in a profile, and replaces them with the values.

    ${secret:/streamkeeper/prices}         a secret of Secrets Manager, its whole text
    ${secret:/streamkeeper/prices:token}   one field of a secret that is a JSON object
    ${ssm:/streamkeeper/prices/token}      a parameter of the Parameter Store

The caller reads the values. Invariant: a value replaces only a reference of the profile's own, never something that an
upstream or a caller wrote and that looks like one.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, cast
from urllib.parse import quote

from handlers.profile.addresses import ProfileError

# What the function's role may read, and nothing else (packaging/resources/roles.yml).
PREFIX = "/streamkeeper/"
# Where a name ends like this, its value is a credential.
_CREDENTIAL = re.compile(r".*(?:authorization|cookie|api-?key|access-?key|token|secret|password)", re.IGNORECASE)
_REFERENCE = re.compile(r"\$\{(secret|ssm):([A-Za-z0-9/_.-]+)(?::([A-Za-z0-9_.-]+))?\}")


@dataclass(frozen=True, slots=True, order=True)
class Reference:
    """Where a secret is kept: `key` is the field of a JSON object, "" the whole text."""

    kept_in: Literal["secret", "ssm"]
    name: str
    key: str = ""


Secrets = Mapping[Reference, str]


def references(text: str) -> list[Reference]:
    """The references in `text`, in order; raises ProfileError where one may not be read or is misspelt."""
    referred = [_reference(match) for match in _REFERENCE.finditer(text)]
    if "${" in _REFERENCE.sub("", text):
        raise ProfileError(
            "holds ${...} that is not a reference to a secret; write ${secret:/streamkeeper/name}, "
            "${secret:/streamkeeper/name:field} or ${ssm:/streamkeeper/name}"
        )
    for reference in referred:
        if not reference.name.startswith(PREFIX) or reference.name.endswith("/"):
            raise ProfileError(f"refers to {reference.name!r}; only names under {PREFIX} can be read")
        if reference.kept_in == "ssm" and reference.key:
            raise ProfileError(f"refers to a field of the parameter {reference.name!r}; only secrets have fields")
    return referred


def is_bare(name: str, text: str) -> bool:
    """Whether `text` is a credential that stands there in plain text: by its name it is one, and nothing refers to it.

    What a stream id brings ({name}) is not a secret of the profile's.
    """
    if not text or "{" in text or _REFERENCE.search(text):
        return False
    return _CREDENTIAL.fullmatch(name.replace("_", "-")) is not None


def filled(text: str, secrets: Secrets, spell: Callable[[str], str] = str) -> str:
    """`text` with every reference replaced by its value as `spell` spells it."""
    return _REFERENCE.sub(lambda match: spell(secrets[_reference(match)]), text)


def quoted(value: str) -> str:
    """`value` as it stands in the query of an address."""
    return quote(value, safe="")


def without(text: str) -> str:
    """`text` with an "x" in place of every reference."""
    return _REFERENCE.sub("x", text)


def _reference(match: re.Match[str]) -> Reference:
    return Reference(cast(Literal["secret", "ssm"], match[1]), match[2], match[3] or "")
