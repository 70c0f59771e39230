"""Every sink keeps the same contract, at a real consumer behind a proxy that fails."""

import itertools
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from moto import mock_aws

from handlers.deliver import contract
from handlers.deliver.batch import Delivered, Letter, Ports, Result, deliver
from handlers.deliver.contract import Tools
from handlers.deliver.table_records import messages
from handlers.profile.deliver_field import KINDS
from tests.handlers.deliver import rigs
from tests.handlers.deliver.records import NOW_MS, event, item_record, segment_record
from tests.handlers.deliver.rigs import Rig

# What a bucket and a function will never take has megabytes.
SMALL_POISON = [pytest.param(kind, marks=pytest.mark.long) if kind in rigs.POISON else kind for kind in KINDS]


@pytest.fixture(params=KINDS)
def rig(request: pytest.FixtureRequest, endpoint: str) -> Iterator[Rig]:
    """Each kind of sink in turn; the embedded AWS plays the services."""
    with rigs.rig(request.param, endpoint, f"rig-{uuid.uuid4().hex[:12]}") as made:
        yield made


class Deliverer:
    """The delivery as Lambda runs it, in virtual time: it calls again from the record that was reported."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.now_s = NOW_MS / 1000
        self.letters: list[Letter] = []
        self.restart()

    def restart(self) -> None:
        """Begins a new sandbox, as a redeployment or a kill does: it remembers nothing."""
        self.delivered = Delivered()

    def _dead_letter(self, letter: Letter) -> bool:
        self.letters.append(letter)
        return True

    def run(self, records: list[dict[str, Any]]) -> Result:
        """One invocation."""
        tools = Tools(self.rig.client, lambda _: rigs.SECRET, lambda: round(self.now_s * 1000))
        ports = Ports(
            lambda _: [self.rig.target], lambda target: contract.sending(target, tools), self._dead_letter,
            lambda: round(self.now_s * 1000), lambda: 100_000,
        )  # fmt: skip
        return deliver(records, ports, self.delivered)

    def run_all(self, records: list[dict[str, Any]], until_s: float = 0) -> Result:
        """Calls until all is done; Lambda doubles the rest between two calls, up to a minute."""
        left = records
        for rest_s in itertools.chain([1, 2, 4, 8, 16, 32], itertools.repeat(60)):
            self.rig.proxy.is_away = self.now_s < NOW_MS / 1000 + until_s
            result = self.run(left)
            if not result.failed_at:
                return result
            left = [one for one in left if one["dynamodb"]["SequenceNumber"] >= result.failed_at]
            self.now_s += rest_s
        raise AssertionError


def made(count: int = 6, streams: str = "ab") -> list[dict[str, Any]]:
    """Records of two streams: items of the one, segments of two events of the other."""
    records = []
    for n in range(count):
        stream_id = f"rig:{streams[n % len(streams)]}"
        if n % 2:
            records.append(segment_record(stream_id, [event(f"{n}-0"), event(f"{n}-1")], n))
        else:
            records.append(item_record(stream_id, event(str(n), at_ms=NOW_MS + n), n))
    return records


KEYS = {"rig:a": ["0", "2", "4"], "rig:b": ["1-0", "1-1", "3-0", "3-1", "5-0", "5-1"]}


def by_stream(rig: Rig, *, once: bool) -> dict[str, list[str]]:
    """The keys that arrived by stream; in the order of their first arrival, or sorted where the sink keeps none."""
    keys: dict[str, list[str]] = {}
    for one in rig.received():
        keys.setdefault(one["stream"], []).append(one["key"])
    if not once:
        keys = {stream_id: list(dict.fromkeys(several)) for stream_id, several in keys.items()}
    if contract.sink(rig.target.kind).PROMISES.order == "none":
        keys = {stream_id: sorted(several) for stream_id, several in keys.items()}
    return dict(sorted(keys.items()))


def test_events_arrive_once_and_in_order(rig: Rig) -> None:
    """Items and segments alike, each with its key, its stream and its body."""
    deliverer = Deliverer(rig)
    assert deliverer.run(made()).failed_at == ""
    assert by_stream(rig, once=True) == KEYS
    assert deliverer.letters == []


def test_a_batch_that_fails_in_part_keeps_the_order(rig: Rig) -> None:
    """What was refused comes again, before what follows it; what was taken does not."""
    deliverer = Deliverer(rig)
    rig.proxy.faults = ["part", "part"]
    deliverer.run_all(made())
    assert by_stream(rig, once=True) == KEYS
    assert deliverer.letters == []


@pytest.mark.parametrize("rig", SMALL_POISON, indirect=True)
def test_a_poison_event_goes_to_the_dead_letter_queue(rig: Rig) -> None:
    """One that the sink will never take; those behind it arrive."""
    deliverer = Deliverer(rig)
    records = made()
    records.insert(3, item_record("rig:a", event("poison", rig.poison, at_ms=NOW_MS + 3), 2))
    deliverer.run_all(records)
    assert by_stream(rig, once=True) == KEYS
    assert [(letter.stream_id, letter.key, letter.label) for letter in deliverer.letters] == [
        ("rig:a", "poison", rig.target.label)
    ]


@pytest.mark.parametrize("away_s", [120, pytest.param(3600, marks=pytest.mark.long)])
def test_a_sink_that_was_away_gets_everything(rig: Rig, away_s: int) -> None:
    """Nothing is buried meanwhile, and the lag is said."""
    deliverer = Deliverer(rig)
    result = deliverer.run_all(made(), until_s=away_s)
    assert by_stream(rig, once=True) == KEYS
    assert deliverer.letters == []
    assert away_s * 1000 <= max(count.lag_ms for count in result.counts.values()) < (away_s + 61) * 1000


def test_a_redeployment_loses_nothing(rig: Rig) -> None:
    """The new sandbox goes on where the last one reported; what comes again has the same key."""
    deliverer = Deliverer(rig)
    rig.proxy.faults = ["part"]
    failed_at = deliverer.run(made()).failed_at
    assert failed_at
    deliverer.restart()
    deliverer.run_all([one for one in made() if one["dynamodb"]["SequenceNumber"] >= failed_at])
    assert by_stream(rig, once=rig.target.kind == "sqs") == KEYS


def test_a_kill_between_sending_and_remembering_repeats_the_key(rig: Rig) -> None:
    """The sink has the event and nobody knows: it comes again under its key, by which it is once."""
    deliverer = Deliverer(rig)
    rig.proxy.faults = ["unanswered"]
    assert deliverer.run(made()).failed_at
    deliverer.restart()
    deliverer.run_all(made())
    # A FIFO queue drops the second by its deduplication id, and a bucket has the same object again.
    assert by_stream(rig, once=rig.target.kind in ("sqs", "s3")) == KEYS


# Without lambda, which moto runs in containers alone, and the webhook, which is no service.
@pytest.mark.long
@pytest.mark.parametrize("kind", ["sqs", "eventbridge", "kinesis", "firehose", "s3"])
def test_moto_takes_what_is_sent(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second opinion: each event of two arrives, and none is refused."""
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with mock_aws():
        target, received = rigs.AWS_RIGS[kind](None, f"second-{kind}")
        clients: dict[str, Any] = {}

        def client(service: str) -> Any:
            return clients.setdefault(service, rigs.client(service, None))

        _, send = contract.sending(target, Tools(client, str, lambda: NOW_MS))
        batch = [messages(item_record("rig:a", event(key), n), n)[0] for n, key in enumerate("12")]
        assert send(batch) == {}
        assert sorted(one["key"] for one in received()) == ["1", "2"]
