"""Streams that send to an ordered sink at the same moment share requests, and none is harmed by another."""

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from handlers.deliver.contract import Message, Promises, Refusal
from handlers.deliver.shared_requests import SharedRequests
from handlers.profile.deliver_field import Target
from tests.handlers.deliver.records import event, message

QUEUE = Target("sqs", "a.fifo")
PROMISES = Promises(order="message", most_messages=10, most_bytes=10_000, most_message_bytes=10_000)
NO, NEVER = Refusal("no"), Refusal("never", is_final=True)


class Sink:
    """Accepts requests; the first one waits until `others` wait after it."""

    def __init__(self, refused: Mapping[str, Refusal], others: int) -> None:
        self.requests: list[list[tuple[str, str]]] = []
        self._refused, self._others, self._waiting = refused, others, threading.Semaphore(0)

    def send(self, batch: Sequence[Message]) -> Mapping[int, Refusal]:
        self.requests.append([(one.stream_id, one.key) for one in batch])
        if len(self.requests) == 1:
            for _ in range(self._others):
                assert self._waiting.acquire(timeout=30)
        whole = next((NEVER for one in batch if self._refused.get(one.stream_id) is NEVER), None)
        # A message that the service cannot read makes it refuse the whole request.
        if whole is not None:
            return dict.fromkeys(range(len(batch)), whole)
        return {at: NO for at, one in enumerate(batch) if self._refused.get(one.stream_id) is NO}

    def comes(self) -> None:
        self._waiting.release()


def sent(streams: int, refused: Mapping[str, Refusal], target: Target = QUEUE) -> tuple[Sink, dict[str, list[Refusal]]]:
    """Send two events of each stream, with a thread for each stream; return the refusals by stream."""
    sink = Sink(refused, streams - 1)
    shared = SharedRequests(lambda _target: (PROMISES, sink.send))
    said: dict[str, list[Refusal]] = defaultdict(list)
    first = threading.Event()

    def work(number: int) -> None:
        _, send = shared.sender_of(target)
        if number:
            assert first.wait(30)
            sink.comes()
        for key in ("1", "2"):
            if not number and key == "1":
                first.set()
            said[f"s{number}"] += send([message(f"s{number}", event(key))]).values()

    with ThreadPoolExecutor(streams) as threads:
        list(threads.map(work, range(streams)))
    return sink, said


def test_streams_share_requests_and_each_keeps_its_order() -> None:
    """Ten streams with two events each need under twelve requests; only the refused stream gets its refusal."""
    sink, said = sent(10, {"s3": NO})
    assert len(sink.requests) < 12
    assert all(len({stream for stream, _ in request}) == len(request) <= 10 for request in sink.requests)
    flat = [one for request in sink.requests for one in request]
    assert sorted(flat) == sorted((f"s{n}", key) for n in range(10) for key in ("1", "2"))
    assert all(flat.index((f"s{n}", "1")) < flat.index((f"s{n}", "2")) for n in range(10))
    assert said == {f"s{n}": [NO, NO] if n == 3 else [] for n in range(10)}


def test_events_of_a_request_refused_as_a_whole_are_tried_alone() -> None:
    """If a whole request is refused, each event is tried alone, so no stream's event is lost for another's."""
    sink, said = sent(4, {"s2": NEVER})
    assert said == {f"s{n}": [NEVER, NEVER] if n == 2 else [] for n in range(4)}
    assert all([("s2", key)] in sink.requests for key in ("1", "2"))


def test_without_an_order_a_stream_fills_its_own_requests() -> None:
    """Without an order, requests are not shared, because a stream fills its own."""
    send = object()
    shared = SharedRequests(lambda _target: (PROMISES, send))  # type: ignore[arg-type,return-value]
    assert shared.sender_of(Target("sqs", "a.fifo", in_order=False))[1] is send
