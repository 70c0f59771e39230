"""Any stream id passes through the whole service: POST, tables, bucket, GET, events, DELETE, the list."""

import json
import random
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import urllib3
from hypothesis import given, settings
from hypothesis import strategies as st

from handlers.framing.events import StreamEvent
from handlers.profile.addresses import check_stream_id
from local.functions.sandbox import Answer
from tests import problems
from tests.examples import examples
from tests.handlers.api_requests import read_all_pages
from tests.handlers.aws import BUCKET, Aws
from tests.handlers.context import Context
from tests.local.service.test_gateway import ARN, service
from tests.local.support import in_thread
from tests.stream_ids import NAMES, PCHAR, is_sound

# A body too large for an item: the bucket holds it.
LARGE = random.Random(1).randbytes(450_000)


class Chain:
    """The API on a socket, the inputs of the executions started, and the control function on the embedded AWS."""

    def __init__(self, origin: str, started: list[Any], aws: Aws) -> None:
        self._origin = origin
        self._started = started
        self._aws = aws
        self._http = urllib3.PoolManager(retries=False)

    def ask(self, method: str, segment: str, rest: str = "") -> tuple[int, Any]:
        """Return the status and the JSON of a request to /connections/{segment}."""
        # Sent like this, the address stays as it is: urllib3 would remove dots from it.
        host = urlsplit(self._origin)
        pool = self._http.connection_from_host(host.hostname, host.port)
        answer = pool.urlopen(method, f"/connections/{segment}{rest}", headers={"Accept": "*/*"})
        return answer.status, answer.json()

    def write_stream(self, stream_id: str, number: int) -> None:
        """Write for the newest execution what machine and connection manager write: the lease and two events."""
        named = self._started[-1]["pathParameters"]["streamId"]
        assert (named, check_stream_id(named)) == (stream_id, "demo")
        self._aws.put_control(named, "lease", execution={"S": ARN}, generation={"N": "1"})
        store = self._aws.store(bucket=BUCKET)
        store.claim(named, execution=ARN, holder="A/request")
        events = [
            StreamEvent("k", f"of {stream_id}", None, None, None, number),
            StreamEvent("l", LARGE, None, None, None, number),
        ]
        assert store.write(named, 1, 0, events).stored == 2

    def all_streams(self) -> list[str]:
        """Return the list of streams, by its `next`."""
        listed = read_all_pages(lambda place: self.ask("GET", "", f"?{urlencode({'limit': 7, **place})}")[1], "streams")
        return [stream["stream"] for stream in listed]

    def close(self) -> None:
        self._http.clear()


def test_an_id_means_one_stream_from_end_to_end(aws: Aws, function: ModuleType, tmp_path: Path) -> None:
    """A stream id in any percent-encoding means one stream in every part of the service; an invalid id gives 400."""
    kept: list[str] = []

    async def invoke(_name: str, payload: bytes) -> Answer:
        return Answer(json.dumps(function.handler(json.loads(payload), Context())).encode(), None, "request")

    @settings(max_examples=examples(20))
    @given(NAMES, st.sampled_from(["", PCHAR]))
    def follow(name: str, safe: str) -> None:
        stream_id = f"demo:{name}"
        segment = quote(stream_id, safe=safe)
        if not is_sound(stream_id):
            for method in ("POST", "GET", "DELETE"):
                code, refusal = chain.ask(method, segment)
                assert (code, sorted(problems.read(code, refusal))) == (400, ["detail", "request_id"])
            return
        assert chain.ask("POST", segment)[0] == 200
        if stream_id not in kept:
            chain.write_stream(stream_id, len(kept))
            kept.append(stream_id)
        code, status = chain.ask("GET", segment)
        assert (code, status["stream"]) == (200, stream_id)
        code, first = chain.ask("GET", segment, "/events?limit=1")
        assert (code, first["stream"]) == (200, stream_id)
        assert [event["data"] for event in first["events"]] == [f"of {stream_id}"]
        code, second = chain.ask("GET", segment, f"/events?limit=1&after={quote(first['next'])}")
        assert (code, [event["key"] for event in second["events"]]) == (200, ["l"])
        code, stopping = chain.ask("DELETE", segment)
        assert (code, stopping["stream"]) == (202, stream_id)

    with in_thread(lambda: service(tmp_path, invoke)) as (origin, started):
        chain = Chain(origin, started, aws)
        try:
            follow()
            assert chain.all_streams() == sorted(kept)
        finally:
            chain.close()
    # One object for each stream: the contents are equal, and none overwrote another's.
    assert len(aws.objects()) == len(kept)
