"""Where a profile's events go next: what is taken, and what is refused in one sentence."""

from typing import Any

import pytest

from handlers.deliver.contract import sink
from handlers.profile.checked_fields import Fields
from handlers.profile.deliver_field import KINDS, Target, targets
from handlers.profile.secret_references import Reference

HOOK = "https://example.org/a/b"
SECRET = {"secret": "${secret:a}"}
A_TABLE = 'deliver must be a table such as { sqs = "orders.fifo" }, or a list of up to 5 of them'
BEGINNING = "the beginning of keys, such as raw/ (200 characters at most)"
SIGNS = "refer to the secret that signs, ${secret:name}"
ENCRYPTED = "begin with https://, but where allow_private = true"
NO_REFERENCE = "hold no reference: what authenticates a webhook is its signature"


def read(value: Any) -> tuple[tuple[Target, ...], list[str]]:
    """What the field means, and what is wrong with it."""
    fields = Fields("demo", {"deliver": value} if value is not None else {}, [])
    return targets(fields), fields.problems


def test_without_the_field_events_go_nowhere() -> None:
    """A profile that does not say delivers nothing."""
    assert read(None) == ((), [])


def test_each_kind_is_read() -> None:
    """One table or a list of them; of an address the label shows the host alone."""
    webhook = {"webhook": HOOK, "secret": "${secret:hook}"}
    given = [
        {"sqs": "a.fifo"},
        {"kinesis": "k", "unordered": True},
        {"s3": "lake", "prefix": "raw/"},
        {"eventbridge": "bus"},
        webhook,
    ]
    read_all, problems = read(given)
    assert problems == []
    assert read_all == (
        Target("sqs", "a.fifo"),
        Target("kinesis", "k", in_order=False),
        Target("s3", "lake", prefix="raw/"),
        Target("eventbridge", "bus"),
        Target("webhook", HOOK, secret=Reference("secret", "hook")),
    )
    assert [one.label for one in read_all][-2:] == ["eventbridge:bus", "webhook:example.org"]
    assert read({"lambda": "consumer"}) == ((Target("lambda", "consumer"),), [])


def test_each_kind_has_a_sink() -> None:
    """Its module says what it promises, within what it takes."""
    for kind in KINDS:
        promises = sink(kind).PROMISES
        assert promises.most_messages >= 1
        assert promises.around_bytes < promises.most_message_bytes <= promises.most_bytes


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("sqs", A_TABLE),
        ([], A_TABLE),
        ({}, "deliver must have one of sqs, eventbridge, kinesis, firehose, s3, lambda, webhook"),
        ({"sqs": "a.fifo", "s3": "bbb"}, f"deliver must have one of {', '.join(KINDS)}"),
        ({"sqs": "orders"}, "deliver.sqs must be the name of a FIFO queue, such as orders.fifo"),
        ({"sqs": "a.fifo", "prefix": "x"}, "deliver.prefix is not a field of a target of the kind sqs"),
        ({"s3": "lake", "prefix": "/raw"}, f"deliver.prefix must be {BEGINNING}"),
        ({"webhook": HOOK}, f"deliver.secret must {SIGNS}"),
        ({"webhook": HOOK, "secret": "whsec_x"}, f"deliver.secret must {SIGNS}"),
        ({"webhook": "http://example.org", **SECRET}, f"deliver.webhook must {ENCRYPTED}"),
        ({"webhook": "https://example.org/${secret:a}", **SECRET}, f"deliver.webhook must {NO_REFERENCE}"),
        ([{"sqs": "a.fifo"}, {"sqs": "a.fifo", "unordered": True}],
         "deliver names one target twice, which would be one in counts and logs: sqs:a.fifo"),
        (
            [{"webhook": f"https://example.org/{path}", **SECRET} for path in "ab"],
            "deliver names two webhooks of one host, which would be one in counts and logs: webhook:example.org",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_sentence(value: Any, problem: str) -> None:
    """It names the profile and the field, and says what would be right."""
    assert read(value)[1] == [f"the profile 'demo': {problem}"]
