"""`profile try --repair` compares the stream's events with those at the repair's address, under the same keys."""

import json
import os
from pathlib import Path

import pytest

from handlers.framing.events import StreamEvent, hash_key
from handlers.framing.frames import Frame
from handlers.profile.parse import parse
from local.cli import main
from local.profiles.repair_trial import compare_with_address
from tests.http_server import Answer, Request, answering
from tests.real.upstream import serving

PROFILE = """
address = "{origin}/demo-trades:a?interval_ms=100"
allow_private = true
framing = "ndjson"
key = "{key}"
[repair]
address = "{origin}/rest/demo-trades?after={{after}}&before={{before}}"
items = "$.trades"
key = "$.id"
after_s = 4
"""


@pytest.mark.cpu(4)
@pytest.mark.parametrize(("key", "status"), [("$.id", 0), ("$.at_ms", 1)])
def test_the_keys_of_the_stream_and_of_the_address_are_compared(
    key: str, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If all keys agree, the command says so and exits with 0; if an item has another key than its event, with 1."""
    with serving() as (_, port):
        file = tmp_path / "trades.toml"
        file.write_text(PROFILE.format(origin=f"http://127.0.0.1:{port}", key=key))
        environment = dict(os.environ)
        assert main(["profile", "try", str(file), "--seconds", "2", "--repair"]) == status
        assert dict(os.environ) == environment
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("repair: ")]
    if status == 0:
        assert len(said) == 2
        assert said[0].startswith("repair: the address has ")
        assert said[1] == "repair: the address leaves out the events at the ends of the request"
        found, _, wanted = said[0].removeprefix("repair: the address has ").partition(" of ")
        assert found == wanted.split()[0]
    else:
        assert said


@pytest.mark.parametrize(("ids", "is_told"), [([2, 3, 4], False), ([4, 3, 2], False), ([3, 2, 4], True)])
def test_an_address_with_another_order_than_the_stream_is_reported(ids: list[int], is_told: bool) -> None:
    """A different order is reported, because a repair by id would miss an event beyond an edge. The reverse order is
    accepted.

    Of numbered pages the first is requested by its number too; after the last, the address answers 404. The greeting at
    the beginning of the stream has no key to begin from.
    """
    said: list[str] = []
    page = Answer(body=json.dumps([{"id": one} for one in ids]).encode())
    with answering(lambda request: page if "after=1&page=1" in request.path else Answer(404)) as url:
        repair = {"address": f"{url}/?after={{after}}", "items": "$", "after_s": 0, "next": {"number": "page"}}
        fields = {"address": url, "allow_private": True, "framing": "ndjson", "key": "$.id", "repair": repair}
        seen = [StreamEvent(str(one), f'{{"id":{one}}}', None, None, None, one) for one in range(1, 6)]
        seen.insert(0, StreamEvent(hash_key(Frame("{}")), "{}", None, None, None, 0))
        assert compare_with_address(parse("s", fields, {}), "s", seen, {}, said.append)
    assert ("repair: the address has them in another order than the stream" in said) == is_told


def test_a_trial_of_a_repair_obeys_retry_after_and_ends_at_the_far_edge() -> None:
    """A trial, like a repair, obeys Retry-After and does not read on to the present."""
    said, asked = list[str](), list[str]()

    def answer(request: Request) -> Answer:
        asked.append(request.path)
        if len(asked) == 1:
            return Answer(429, headers={"Retry-After": "1"})
        first = int(request.path.rpartition("=")[2])
        return Answer(body=json.dumps([{"id": first}, {"id": first + 1}]).encode())

    with answering(answer) as url:
        following = {"cursor": "$[-1].id", "query": "after"}
        repair = {"address": f"{url}/?after={{after}}", "items": "$", "after_s": 0, "pace_s": 0, "next": following}
        fields = {"address": url, "allow_private": True, "framing": "ndjson", "key": "$.id", "repair": repair}
        seen = [StreamEvent(str(one), f'{{"id": {one}}}', None, None, None, one) for one in range(1, 5)]
        assert compare_with_address(parse("s", fields, {}), "s", seen, {}, said.append)
    assert asked == [f"/?after={one}" for one in (1, 1, 2, 3)]
