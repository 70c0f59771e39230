"""The field `deliver`: its valid forms, and the sentence that refuses each invalid one."""

from datetime import date, datetime, timedelta, timezone
from typing import Any

import pytest

from handlers.deliver.contract import sink_module
from handlers.profile.checked_fields import Fields
from handlers.profile.deliver_field import KINDS, Target, targets
from handlers.profile.secret_references import Reference

HOOK = "https://example.org/a/b"
SECRET = {"secret": "${secret:a}"}
A_TABLE = 'deliver must be a table such as { sqs = "orders.fifo" }, or a list of up to 5 such tables'
BEGINNING = "a beginning of keys such as raw/, of at most 200 characters, without a slash at its start"
SIGNS = "refer to the secret that signs the events, as ${secret:name}"
ENCRYPTED = "begin with https:// (or, with allow_private = true, http://)"
ALONE = "be left out with unordered = true: batches keep the order and are sent one at a time"
SINCE = '"start", or an instant such as 2026-11-21T06:25:19Z or a date'
NO_REFERENCE = "not refer to a secret: a webhook is authenticated by its signature"


def read(value: Any) -> tuple[tuple[Target, ...], list[str]]:
    """Return the meaning of the field, and its problems."""
    fields = Fields("demo", {"deliver": value} if value is not None else {}, [])
    return targets(fields), fields.problems


def test_each_kind_is_read() -> None:
    """The field is one table or a list of them; a webhook's label shows only the host."""
    secret, webhook = Reference("secret", "hook"), {"webhook": HOOK, "secret": "${secret:hook}"}
    table: list[tuple[dict[str, Any], Target]] = [
        ({"sqs": "a.fifo"}, Target("sqs", "a.fifo")),
        ({"kinesis": "k", "unordered": True}, Target("kinesis", "k", in_order=False)),
        ({"s3": "lake", "prefix": "raw/"}, Target("s3", "lake", prefix="raw/", wait_ms=60_000)),
        ({"eventbridge": "bus"}, Target("eventbridge", "bus")),
        (webhook, Target("webhook", HOOK, secret=secret)),
    ]
    read_all, problems = read([given for given, _ in table])
    assert (read_all, problems) == (tuple(target for _, target in table), [])
    assert [one.label for one in read_all][-2:] == ["eventbridge:bus", "webhook:example.org"]
    assert read({"lambda": "consumer"}) == ((Target("lambda", "consumer"),), [])


@pytest.mark.parametrize(
    ("since", "from_ms"),
    [
        ("start", 0),
        ("2026-01-01T00:00:00Z", 1_767_225_600_000),
        (datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 1_767_225_600_000),
        (datetime(2026, 1, 1), 1_767_225_600_000),  # noqa: DTZ001
        (date(2026, 1, 1), 1_767_225_600_000),
    ],
)
def test_a_new_sink_may_begin_with_earlier_events(since: Any, from_ms: int) -> None:
    """`from` is "start" or an instant, as a text or TOML's own type; without an offset it is UTC."""
    assert read({"sqs": "a.fifo", "from": since}) == ((Target("sqs", "a.fifo", from_ms=from_ms),), [])


def test_a_sink_takes_batches_or_unordered_requests() -> None:
    """Batches, waits and `unordered` are read within their bounds."""
    for sink_ in ({"webhook": HOOK, **SECRET}, {"sqs": "a.fifo"}, {"kinesis": "a"}):
        (target,), problems = read(sink_ | {"batch": 100, "wait_s": 1.5})
        assert (target.batch, target.wait_ms, target.in_order, problems) == (100, 1_500, True, [])
    (target,), problems = read({"webhook": HOOK, **SECRET, "unordered": True})
    assert (target.batch, target.in_order, problems) == (1, False, [])


def test_webhooks_of_one_host_are_told_apart_by_a_port_or_a_label() -> None:
    """Webhooks of one host differ by a port or a label; the address is never shown, because its path may be secret."""
    addresses = ["https://example.org/a", "https://example.org:8443/a", "https://example.org/b"]
    hooks = [{"webhook": one, **SECRET} for one in addresses]
    read_all, problems = read([*hooks[:2], hooks[2] | {"label": "orders"}])
    assert ([one.label for one in read_all], problems) == (
        ["webhook:example.org", "webhook:example.org:8443", "webhook:orders"],
        [],
    )


def test_each_kind_has_a_sink() -> None:
    """Each kind has a sink whose module promises consistent limits."""
    for kind in KINDS:
        promises = sink_module(kind).PROMISES
        assert promises.most_messages >= 1
        assert promises.around_bytes < promises.most_message_bytes <= promises.most_bytes


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("sqs", A_TABLE),
        ([], A_TABLE),
        ({}, "deliver must have exactly one of sqs, eventbridge, kinesis, firehose, s3, lambda, webhook"),
        ({"sqs": "a.fifo", "s3": "bbb"}, f"deliver must have exactly one of {', '.join(KINDS)}"),
        ({"sqs": "orders"}, "deliver.sqs must be the name of a FIFO queue, such as orders.fifo"),
        ({"sqs": "a.fifo", "prefix": "x"}, "deliver.prefix is not a field of a target of the kind sqs"),
        ({"s3": "lake", "batch": 5}, "deliver.batch is not a field of a target of the kind s3"),
        ({"webhook": HOOK, **SECRET, "batch": 0}, "deliver.batch must be a whole number from 1 to 1000"),
        ({"webhook": HOOK, **SECRET, "batch": 5, "unordered": True}, f"deliver.batch must {ALONE}"),
        ({"s3": "lake", "wait_s": -1}, "deliver.wait_s must be a number of seconds from 0 to 300"),
        ({"sqs": "a.fifo", "from": "now"}, f"deliver.from must be {SINCE}"),
        ({"s3": "lake", "prefix": "/raw"}, f"deliver.prefix must be {BEGINNING}"),
        (
            {"webhook": HOOK, **SECRET, "label": "A B"},
            "deliver.label must be a name of lowercase letters, digits, dots and hyphens (64 characters at most)",
        ),
        ({"webhook": HOOK}, f"deliver.secret must {SIGNS}"),
        ({"webhook": HOOK, "secret": "whsec_x"}, f"deliver.secret must {SIGNS}"),
        ({"webhook": "http://example.org", **SECRET}, f"deliver.webhook must {ENCRYPTED}"),
        ({"webhook": "https://example.org/${secret:a}", **SECRET}, f"deliver.webhook must {NO_REFERENCE}"),
        ([{"sqs": "a.fifo"}, {"sqs": "a.fifo", "unordered": True}],
         "deliver names sqs:a.fifo twice, and counts and logs could not tell them apart: leave one out"),
        (
            [{"webhook": f"https://example.org/{path}", **SECRET} for path in "ab"],
            "deliver names webhook:example.org twice, and counts and logs could not tell them apart: give one a "
            'label = "..."',
        ),
    ],
)  # fmt: skip
def test_an_invalid_deliver_field_is_refused_in_one_sentence(value: Any, problem: str) -> None:
    """The sentence names the profile, the field, and a valid value."""
    assert read(value)[1] == [f"the profile 'demo': {problem}"]
