"""Parses `deliver`, where a profile's events go next: one table, or a list of them.

    deliver = { sqs = "orders.fifo" }
    deliver = [{ s3 = "lake", prefix = "raw/" }, { webhook = "https://example.org/hook", secret = "${secret:hook}" }]

A target is given by its name, not by its ARN: it is in the stage's own account and region, so one profile serves every
stage. handlers/deliver/sinks has a module for each kind, and packaging/delivery.cjs what its role may do. Invariant:
whatever is returned without a note is valid.
"""

import re
from collections import Counter
from dataclasses import field
from datetime import UTC, date, datetime, time
from typing import Any
from urllib.parse import urlsplit

from handlers.profile import sections
from handlers.profile.addresses import ProfileError, check_address
from handlers.profile.checked_fields import FLAG, TEXT, Fields, Form, integer, number
from handlers.profile.secret_references import Reference
from handlers.values import dataclass

# By kind: the pattern of a target's name, and the same in words. Sources: the API references.
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
# By kind: its further fields.
MORE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(KINDS, ("from",)),
    **dict.fromkeys(("sqs", "kinesis"), ("from", "unordered", "batch", "wait_s")),
    "s3": ("from", "prefix", "wait_s"),
    "lambda": ("from", "wait_s"),
    "webhook": ("from", "label", "secret", "allow_private", "unordered", "batch", "wait_s"),
}
MOST_TARGETS = 5
MOST_BATCH = 1000


def _instant(value: Any) -> int | None:
    """Returns epoch milliseconds, 0 for "start", None for no instant. TOML has its own instants and dates."""
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) and value != "start" else value
    except ValueError:
        return None
    if isinstance(at, date) and not isinstance(at, datetime):
        at = datetime.combine(at, time())
    if isinstance(at, datetime):
        return max(0, round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000))
    return 0 if value == "start" else None


FROM = Form({"type": "string"}, 'must be "start", or an instant such as 2026-11-21T06:25:19Z or a date', _instant)
BATCH, WAIT_S = integer(MOST_BATCH), number(above=-1, most=300)
# The kinds whose events wait for others, so that objects are large and calls are few.
S3_WAIT_S = 60
LABEL = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")
_PREFIX = re.compile(r"[A-Za-z0-9!_.*'()/=-]{1,200}")


@dataclass(frozen=True, slots=True)
class Target:
    """One place where events go; `secret` signs a webhook's requests, `prefix` begins the keys in a bucket.

    `in_order` is False if a request may hold several events of a stream, some of which may be refused, or if several
    requests may be under way. A message has up to `batch` events; a request that is not full waits for `wait_ms`. A new
    sink begins with the events that came at `from_ms` or later, 0 for all stored ones, None for only those that are
    stored from now on.
    """

    kind: str
    name: str = field(repr=False)
    in_order: bool = True
    prefix: str = ""
    secret: Reference | None = None
    allow_private: bool = False
    batch: int = 1
    wait_ms: int = 0
    from_ms: int | None = None
    own_label: str = ""

    @property
    def label(self) -> str:
        """Its name in records, logs and metrics; of an address only the host, because the path may be secret."""
        host = urlsplit(self.name).netloc.rpartition("@")[2] if self.kind == "webhook" else self.name
        return f"{self.kind}:{self.own_label or host}"


def targets(fields: Fields) -> tuple[Target, ...]:
    """Returns where events go next; none if the field is absent."""
    value = fields.take("deliver")
    if value is None:
        return ()
    tables = value if isinstance(value, list) else [value]
    if not 1 <= len(tables) <= MOST_TARGETS or not all(isinstance(table, dict) for table in tables):
        shape = 'must be a table such as { sqs = "orders.fifo" }, or a list'
        fields.add_problem("deliver", f"{shape} of up to {MOST_TARGETS} such tables")
        return ()
    read = [target for table in tables if (target := _target(fields.fields_of("deliver", table), table)) is not None]
    twice = [label for label, count in Counter(target.label for target in read).items() if count > 1]
    if twice:
        fix = 'give one a label = "..."' if twice[0].startswith("webhook:") else "leave one out"
        fields.add_problem("deliver", f"names {twice[0]} twice, and counts and logs could not tell them apart: {fix}")
    return tuple(read)


def _target(fields: Fields, table: dict[str, Any]) -> Target | None:
    kinds = [kind for kind in KINDS if kind in table]
    if len(kinds) != 1:
        fields.add_problem("", f"must have exactly one of {', '.join(KINDS)}")
        return None
    (kind,) = kinds
    name = fields.read(kind, TEXT, "")
    pattern, words = NAMES[kind]

    def own(field: str, form: Form, default: Any) -> Any:
        return fields.read(field, form, default) if field in MORE[kind] else default

    in_order, prefix, label = not own("unordered", FLAG, False), own("prefix", TEXT, ""), own("label", TEXT, "")
    if label and not LABEL.fullmatch(label):
        fields.add_problem(
            "label", "must be a name of lowercase letters, digits, dots and hyphens (64 characters at most)"
        )
    batch, wait_s = own("batch", BATCH, 1), own("wait_s", WAIT_S, S3_WAIT_S if kind == "s3" else 0)
    allow_private, secret = own("allow_private", FLAG, False), _secret(fields) if "secret" in MORE[kind] else None
    if kind == "webhook":
        _check_webhook(fields, name, allow_private=allow_private)
    elif not re.fullmatch(pattern, name):
        fields.add_problem(kind, f"must be {words}")
    if prefix and (not _PREFIX.fullmatch(prefix) or prefix.startswith("/")):
        fields.add_problem(
            "prefix",
            "must be a beginning of keys such as raw/, of at most 200 characters, without a slash at its start",
        )
    from_ms = fields.read("from", FROM)
    fields.refuse_unknown(f"a target of the kind {kind}")
    if batch > 1 and not in_order:
        fields.add_problem(
            "batch", "must be left out with unordered = true: batches keep the order and are sent one at a time"
        )
    return Target(kind, name, in_order, prefix, secret, allow_private, batch, round(wait_s * 1000), from_ms, label)


def _secret(fields: Fields) -> Reference | None:
    text = fields.read("secret", TEXT, "")
    referred = sections.check_references(fields, "secret", text)
    if referred is None:
        return None
    if len(referred) != 1 or not re.fullmatch(r"\$\{[^}]*\}", text):
        fields.add_problem("secret", "must refer to the secret that signs the events, as ${secret:name}")
        return None
    return referred[0]


def _check_webhook(fields: Fields, address: str, *, allow_private: bool) -> None:
    if "${" in address:
        fields.add_problem("webhook", "must not refer to a secret: a webhook is authenticated by its signature")
        return
    try:
        check_address(address)
    except ProfileError as error:
        fields.add_problem("webhook", str(error))
        return
    if not address.startswith("https://") and not allow_private:
        fields.add_problem("webhook", "must begin with https:// (or, with allow_private = true, http://)")
