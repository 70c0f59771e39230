"""Recognizes references to secrets in a profile, and replaces them with the values.

    ${secret:prices}         a secret of Secrets Manager, its whole text
    ${secret:prices:token}   one field of a secret that is a JSON object
    ${ssm:prices/token}      a parameter of the Parameter Store

Each stage has its own names: `prices` is /streamkeeper/prod/prices in the stage prod. The full name may be written too;
then only that stage can read it.

The caller reads the values. Invariant: a value replaces only a reference in the profile itself, never a text that an
upstream or a caller wrote and that looks like one.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple, cast
from urllib.parse import unquote

from handlers.profile.addresses import ProfileError

# Each stage has a folder below it, the only one that its functions' role may read (packaging/resources/roles.cjs).
PREFIX = "/streamkeeper/"
_WHOLE = re.compile(PREFIX + r"[a-z][a-z0-9-]*/.+")
# A value whose name ends like this is a credential.
_CREDENTIAL = re.compile(r".*(?:authorization|cookie|api-?key|access-?key|token|secret|password)", re.IGNORECASE)
_REFERENCE = re.compile(r"\$\{(secret|ssm):([A-Za-z0-9/_.-]+)(?::([A-Za-z0-9_.-]+))?\}")

HIDDEN = "…"
# How many characters of a text are searched for secrets; fewer are ever shown.
SEARCHED = 4096
# This many characters of a secret at the end of a text count as a secret that was cut off.
_CUT_OFF = 8
# Texts may be nested this deep, each with escapes of its own.
_LAYERS = 3
_JSON_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)


class Reference(NamedTuple):
    """Where a secret is kept: `key` is the field of a JSON object, "" the whole text.

    A "place" is kept nowhere: it is the token or the ticket of one opening, named like its placeholder.
    """

    kept_in: Literal["secret", "ssm", "place"]
    name: str
    key: str = ""


Secrets = Mapping[Reference, str]


def placeholder_reference(name: str) -> Reference:
    """Returns the reference that stands for a placeholder's value among the secrets of one opening."""
    return Reference("place", name)


def placeholder_values(secrets: Secrets) -> dict[str, str]:
    """Returns the values of placeholders among the secrets, by their names."""
    return {reference.name: value for reference, value in secrets.items() if reference.kept_in == "place"}


def references(text: str) -> list[Reference]:
    """Returns the references in `text`, in order; raises ProfileError if one is misspelt or must not be read."""
    referred = [_reference(match) for match in _REFERENCE.finditer(text)]
    if "${" in _REFERENCE.sub("", text):
        raise ProfileError(
            "contains ${...} that is not a reference to a secret; write ${secret:name}, ${secret:name:field} "
            "or ${ssm:name}"
        )
    for reference in referred:
        is_whole = reference.name.startswith("/")
        if reference.name.endswith("/") or (is_whole and not _WHOLE.fullmatch(reference.name)):
            raise ProfileError(
                f"refers to {reference.name!r}; write a name such as prices/token, which stands for "
                f"{PREFIX}<stage>/prices/token"
            )
        if reference.kept_in == "ssm" and reference.key:
            raise ProfileError(f"refers to a field of the parameter {reference.name!r}; only secrets have fields")
    return referred


def is_bare(name: str, text: str) -> bool:
    """Returns whether `text` is a credential in plain text: its name says so, and it refers to no secret.

    A part of the stream id ({name}) is not a secret.
    """
    if not text or "{" in text or _REFERENCE.search(text):
        return False
    return _CREDENTIAL.fullmatch(name.replace("_", "-")) is not None


def fill_references(text: str, secrets: Secrets, spell: Callable[[str], str] = str) -> str:
    """`text` with every reference replaced by its value as `spell` spells it."""
    return _REFERENCE.sub(lambda match: spell(secrets[_reference(match)]), text)


def fill_references_and_rest(text: str, secrets: Secrets, rest: Callable[[str], str]) -> str:
    """`text` with every reference replaced by its value, and the text between them passed through `rest`."""
    filled, at = [], 0
    for match in _REFERENCE.finditer(text):
        filled += [rest(text[at : match.start()]), secrets[_reference(match)]]
        at = match.end()
    return "".join([*filled, rest(text[at:])])


def mask_references(text: str) -> str:
    """`text` with an "x" in place of every reference."""
    return _REFERENCE.sub("x", text)


def _reference(match: re.Match[str]) -> Reference:
    return Reference(cast(Literal["secret", "ssm"], match[1]), match[2], match[3] or "")


def hide_secrets(text: str, secrets: Iterable[str]) -> str:
    """Returns the beginning of what an upstream wrote, without these secrets.

    Nothing is left of a text that spells one with the escapes of JSON, of an address or of HTML, or ends inside one.
    """
    known, text = sorted(filter(None, secrets), key=len, reverse=True), text[:SEARCHED]
    for secret in known:
        text = text.replace(secret, HIDDEN)
    is_spelled = any(_has(plain, secret) for plain in _unescaped_forms(text) for secret in known)
    return HIDDEN if is_spelled else text


def _unescaped_forms(text: str) -> set[str]:
    """Returns the text, and every text that it may spell with escapes."""
    # Imported here: refusals are rare, and each import lengthens the cold start.
    from html import unescape

    def of_json(text: str) -> str:
        return _JSON_ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else match[2], text)

    found = {text}
    for _ in range(_LAYERS):
        found |= {way(one) for one in found for way in (of_json, unquote, unescape)}
        found |= {one.replace("+", " ") for one in found}  # as in a form
    return found


def _has(text: str, secret: str) -> bool:
    return secret in text or any(text.endswith(secret[:size]) for size in range(_CUT_OFF, len(secret)))
