"""Parses `deliver`, where a profile's events go next: one table, or a list of them.

    deliver = { sqs = "orders.fifo" }
    deliver = [{ s3 = "lake", prefix = "raw/" }, { webhook = "https://example.org/hook", secret = "${secret:hook}" }]

A target is named, not given by its ARN: it lies in the stage's own account and region, and so one profile serves every
stage. handlers/deliver/sinks has a module for each kind, and sinks.json what its role may do. Invariant: what is
returned without a note is sound.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from handlers.profile.addresses import ProfileError, check_address
from handlers.profile.checked_fields import FLAG, TEXT, Fields
from handlers.profile.secret_references import Reference, references

# Of each kind: what the name of a target may be, and what that is in words. Sources: the API references.
NAMES = {
    "sqs": (r"[A-Za-z0-9_-]{1,75}\.fifo", "the name of a FIFO queue, such as orders.fifo"),
    "eventbridge": (r"[A-Za-z0-9._-]{1,256}", "the name of an event bus"),
    "kinesis": (r"[A-Za-z0-9_.-]{1,128}", "the name of a data stream"),
    "firehose": (r"[A-Za-z0-9_.-]{1,64}", "the name of a Firehose stream"),
    "s3": (r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", "the name of a bucket"),
    "lambda": (r"[A-Za-z0-9_-]{1,64}", "the name of a function"),
    "webhook": (r"https?://.+", "an address that begins with https://"),
}
KINDS = tuple(NAMES)
# Of each kind the fields that it has besides.
MORE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(KINDS, ()),
    **dict.fromkeys(("sqs", "kinesis"), ("unordered",)),
    "s3": ("prefix",),
    "webhook": ("secret", "allow_private"),
}
MOST_TARGETS = 5
_PREFIX = re.compile(r"[A-Za-z0-9!_.*'()/=-]{1,200}")


@dataclass(frozen=True, slots=True)
class Target:
    """One place where events go; `secret` is what signs them, of a webhook alone, `prefix` begins keys in a bucket.

    `in_order` is false where a request may hold several events of a stream, of which some may be refused.
    """

    kind: str
    name: str = field(repr=False)
    in_order: bool = True
    prefix: str = ""
    secret: Reference | None = None
    allow_private: bool = False

    @property
    def label(self) -> str:
        """What stands for it in records, logs and metrics: of an address the host alone, for its path may be secret."""
        return f"{self.kind}:{urlsplit(self.name).hostname if self.kind == 'webhook' else self.name}"


def targets(fields: Fields) -> tuple[Target, ...]:
    """Where events go next; none where the field is absent."""
    value = fields.take("deliver")
    if value is None:
        return ()
    tables = value if isinstance(value, list) else [value]
    if not 1 <= len(tables) <= MOST_TARGETS or not all(isinstance(table, dict) for table in tables):
        shape = 'must be a table such as { sqs = "orders.fifo" }, or a list'
        fields.wrong("deliver", f"{shape} of up to {MOST_TARGETS} of them")
        return ()
    read = [target for table in tables if (target := _target(fields.inside("deliver", table), table)) is not None]
    twice = [label for label, count in Counter(target.label for target in read).items() if count > 1]
    if twice:
        whole = "two webhooks of one host" if twice[0].startswith("webhook:") else "one target twice"
        fields.wrong("deliver", f"names {whole}, which would be one in counts and logs: {twice[0]}")
    return tuple(read)


def _target(fields: Fields, table: dict[str, Any]) -> Target | None:
    kinds = [kind for kind in KINDS if kind in table]
    if len(kinds) != 1:
        fields.wrong("", f"must have one of {', '.join(KINDS)}")
        return None
    (kind,) = kinds
    name = fields.read(kind, TEXT, "")
    pattern, words = NAMES[kind]
    has = MORE[kind]
    in_order = not ("unordered" in has and fields.read("unordered", FLAG, False))
    prefix = fields.read("prefix", TEXT, "") if "prefix" in has else ""
    allow_private = "allow_private" in has and fields.read("allow_private", FLAG, False)
    secret = _secret(fields) if "secret" in has else None
    if kind == "webhook":
        _check_webhook(fields, name, allow_private=allow_private)
    elif not re.fullmatch(pattern, name):
        fields.wrong(kind, f"must be {words}")
    if prefix and (not _PREFIX.fullmatch(prefix) or prefix.startswith("/")):
        fields.wrong("prefix", "must be the beginning of keys, such as raw/ (200 characters at most)")
    fields.refuse_the_rest(f"a target of the kind {kind}")
    return Target(kind, name, in_order, prefix, secret, allow_private)


def _secret(fields: Fields) -> Reference | None:
    text = fields.read("secret", TEXT, "")
    try:
        referred = references(text)
    except ProfileError as error:
        fields.wrong("secret", str(error))
        return None
    if len(referred) != 1 or not re.fullmatch(r"\$\{[^}]*\}", text):
        fields.wrong("secret", "must refer to the secret that signs, ${secret:name}")
        return None
    return referred[0]


def _check_webhook(fields: Fields, address: str, *, allow_private: bool) -> None:
    if "${" in address:
        fields.wrong("webhook", "must hold no reference: what authenticates a webhook is its signature")
        return
    try:
        check_address(address)
    except ProfileError as error:
        fields.wrong("webhook", str(error))
        return
    if not address.startswith("https://") and not allow_private:
        fields.wrong("webhook", "must begin with https://, but where allow_private = true")
