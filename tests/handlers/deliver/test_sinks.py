"""How single sinks use an event's names, and how they read an answer."""

import io
import json
from typing import Any
from unittest.mock import Mock

import pytest
from botocore.exceptions import ClientError

from handlers.deliver import contract
from handlers.deliver.contract import Message, Refusal, Tools
from handlers.deliver.sending import send_all
from handlers.deliver.sinks import lambda_function, s3, sqs
from handlers.profile.deliver_field import Target
from handlers.store.event_reader import position_of
from tests.handlers.deliver import rigs
from tests.local.support import client


def message(stream_id: str, key: str) -> Message:
    """Return an event with these names."""
    return Message(stream_id, key, "1", None, 0, json.dumps({"stream": stream_id, "key": key}))


def test_a_queue_that_compares_by_group_gets_the_key() -> None:
    """The deduplication id is the key if SQS accepts it, otherwise its hash; two keys have two hashes."""
    assert sqs.deduplication_id(message("a", "7"), is_by_group=True) == "7"
    ids = {sqs.deduplication_id(message("a", key), is_by_group=True) for key in ("ü", "ö", " ", "x" * 129)}
    assert {len(one) for one in ids} == {64}
    assert len(ids) == 4


def test_a_queue_that_compares_across_groups_gets_an_id_of_stream_and_key() -> None:
    """Two streams' events with the same key have different ids, and an event's id is always the same."""
    one, other = (sqs.deduplication_id(message(stream_id, "7"), is_by_group=False) for stream_id in "ab")
    assert one != other
    assert one == sqs.deduplication_id(message("a", "7"), is_by_group=False)


def test_a_queue_gets_an_event_with_any_character(endpoint: str) -> None:
    """U+FFFE and U+FFFF, which SQS refuses, reach a queue as JSON escapes."""
    queues, data = client("sqs", endpoint), "\ufffe\uffff\x7f\u2028 \\uffff"
    url = rigs.fifo(queues, "any.fifo")
    event = message("a", "1")._replace(text=json.dumps(data, ensure_ascii=False))
    assert sqs.send([event], Target("sqs", "any.fifo"), Tools(lambda _: queues, str, lambda: 0)) == {}
    (body,) = rigs.receive_all(queues, url)
    assert (json.loads(body), {"\ufffe", "\uffff"} & {*body}) == (data, set())


def test_an_event_above_the_queues_limit_is_poison(endpoint: str) -> None:
    """An event above the queue's MaximumMessageSize is poison; retries would hold up its stream for a day."""
    queues = client("sqs", endpoint)
    attributes = {"FifoQueue": "true", "MaximumMessageSize": "2048"}
    url = queues.create_queue(QueueName="small.fifo", Attributes=attributes)["QueueUrl"]
    large = message("b", "2")._replace(text="x" * 2049)
    refused = sqs.send([message("a", "1"), large], Target("sqs", "small.fifo"), Tools(lambda _: queues, str, lambda: 0))
    assert refused == {1: Refusal("too large for the queue: 2049 bytes of 2048", is_final=True)}
    assert [json.loads(body)["key"] for body in rigs.receive_all(queues, url)] == ["1"]


@pytest.mark.parametrize("size", [2049, 300_000])
def test_an_event_that_the_queue_calls_too_large_is_poison(endpoint: str, size: int) -> None:
    """An event that SQS calls too large is poison, even if the sink knew another limit of the queue."""
    queues = client("sqs", endpoint)
    url = rigs.fifo(queues, f"shrunk-{size}.fifo")
    target, tools = Target("sqs", f"shrunk-{size}.fifo"), Tools(lambda _: queues, str, lambda: 0)
    assert sqs.send([message("a", "1")], target, tools) == {}
    queues.set_queue_attributes(QueueUrl=url, Attributes={"MaximumMessageSize": "2048"})
    refused = sqs.send([message("b", "2")._replace(text="x" * size)], target, tools)
    assert [refusal.is_final for refusal in refused.values()] == [True]


@pytest.mark.parametrize(("most", "letters"), [(2**20, []), (256 * 1024, ["3"])])
def test_a_bus_gets_events_up_to_its_limit(most: int, letters: list[str]) -> None:
    """A bus gets events of up to a megabyte; where its limit is 256 KB, only a larger event is poison."""
    taken: list[str] = []

    def put_events(Entries: list[dict[str, Any]]) -> Any:
        if sum(len(one["Detail"]) for one in Entries) > most:
            raise ClientError({"Error": {"Code": "ValidationException"}}, "PutEvents")
        taken.extend(one["Detail"][0] for one in Entries)
        return {"Entries": [{}] * len(Entries)}

    tools = Tools(lambda _: Mock(put_events=put_events), str, int)
    promises, send = contract.make_sender(Target("eventbridge", "b"), tools)
    several = [message("a", str(n))._replace(text=f"{n}" * (900_000 if n == 3 else 90_000)) for n in range(9)]
    outcomes = send_all(several, promises, send, lambda: False)
    assert ([one.key for one, _ in outcomes.poison], outcomes.waiting) == (letters, [])
    assert sorted(taken) == sorted({*"012345678"} - {*letters})


@pytest.mark.parametrize("stream_id", ["a", "ü" * 256])
def test_an_object_has_a_key_that_s3_accepts_for_any_names(stream_id: str) -> None:
    """An object's key is short enough for S3, with keys of 1,024 bytes, which a replay uses, and a prefix of 200."""
    first, other = (message(stream_id, "k")._replace(position=position_of(key * 1024)) for key in "xy")
    keys = {s3.object_key(one, b"") for one in (first, other)}
    assert [len(key) <= 1024 - 200 for key in keys] == [True, True]


@pytest.mark.parametrize("kind", ["sqs", "kinesis", "eventbridge", "firehose", "s3"])
@pytest.mark.parametrize("taken", [{}, {"Records": [{}], "Entries": [{}], "RequestResponses": [{}], "Successful": []}])
def test_an_answer_without_results_counts_as_refused(kind: str, taken: dict[str, Any]) -> None:
    """If a proxy answers 200 with a page, each event is sent again, and the sink's row has the reason."""
    sends = ("send_message_batch", "put_records", "put_events", "put_record_batch", "put_object")
    service = Mock(**{f"{name}.return_value": {"QueueUrl": "q"} | taken for name in ("get_queue_url", *sends)})
    service.get_queue_attributes.return_value = {}
    _, send = contract.make_sender(Target(kind, "mine.fifo"), Tools(lambda _: service, str, lambda: 0))
    refusal = Refusal("its answer does not say what it took")
    assert send([message("a", "1"), message("a", "2")]) == {0: refusal, 1: refusal}


class Function:
    """Lambda's client for a function that answers with these keys."""

    def __init__(self, failures: str = "", poison: str = "", answer: Any = None) -> None:
        lists = {"batchItemFailures": failures, "poison": poison}
        named = {name: [{"itemIdentifier": key} for key in keys] for name, keys in lists.items()}
        self.answer = named if answer is None else answer

    def invoke(self, **_: Any) -> dict[str, Any]:
        return {"Payload": io.BytesIO(json.dumps(self.answer).encode())}


@pytest.mark.parametrize(
    ("failures", "poison", "again", "final"),
    [("", "", "", ""), ("3", "", "34", ""), ("", "2", "", "2"), ("3", "24", "34", "2"), ("2", "2", "", "2")],
)
def test_a_function_names_failed_and_poison_events(failures: str, poison: str, again: str, final: str) -> None:
    """From the first failed event on, all are sent again in order; poison before it goes to the dead-letter queue."""
    tools = Tools(lambda _: Function(failures, poison), str, lambda: 0)
    refused = lambda_function.send([message("a", key) for key in "1234"], Target("lambda", "mine"), tools)
    keys = {is_final: "".join("1234"[at] for at in sorted(refused) if refused[at].is_final == is_final)
            for is_final in (False, True)}  # fmt: skip
    assert keys == {False: again, True: final}


EMPTY: list[Any] = [{}, [], "ok", 7, {"batchItemFailures": []}, {"batchItemFailures": None}]
STRANGE: list[Any] = [
    *([{"itemIdentifier": one}] for one in ("", None, "9", 1, ["1"], "orders/1")),
    *([{"id": "1"}], ["1"], [None], 7, "1", [{"itemIdentifier": "4"}, {}]),
]


@pytest.mark.parametrize(
    ("answer", "is_taken"),
    [
        *((one, True) for one in EMPTY),
        *(({"batchItemFailures": one}, False) for one in STRANGE),
        *(({"poison": one}, False) for one in STRANGE),
    ],
)
def test_a_function_that_names_an_unknown_event_has_accepted_none(answer: Any, *, is_taken: bool) -> None:
    """As with an event source mapping: the failed event is unknown, so all are sent again, and none is lost."""
    tools = Tools(lambda _: Function(answer=answer), str, lambda: 0)
    refused = lambda_function.send([message("a", key) for key in "1234"], Target("lambda", "mine"), tools)
    words = "the function named an event that it was not called with"
    assert refused == ({} if is_taken else dict.fromkeys(range(4), Refusal(words)))
