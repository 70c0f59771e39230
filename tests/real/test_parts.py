"""A stream in three parts at a run: one stream to its readers, also while its functions are killed."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.harness import Service, running
from tests.local.support import until

PROFILE = """
address = "${UPSTREAM_DEMO}/demo:{name}"
allow_private = true
framing = "sse"
overlap = "evicts"
parts = ["a", "b", "c"]
resume = { header = "Last-Event-ID" }
"""
PARTS = [f"feed:{part}" for part in "abc"]


class Reader:
    """Reads the whole a page at a time, each time from the position that the last event or page had."""

    def __init__(self, service: Service) -> None:
        self._service, self._after = service, ""
        self.numbers: dict[str, list[int]] = defaultdict(list)

    def read(self, limit: int) -> list[dict[str, Any]]:
        """Reads one page."""
        path = f"connections/feed/events?limit={limit}&after={quote(self._after)}"
        status, page = self._service.ask_at("GET", path)
        if status >= 500:
            return []  # the function that answers was killed with the others
        assert (status, page["stream"]) == (200, "feed")
        for event in page["events"]:
            self.numbers[event["stream"]].append(json.loads(event["data"])["n"])
        self._after = page["next"] or (page["events"][-1]["position"] if page["events"] else self._after)
        return list(page["events"])

    def has(self, most: int) -> bool:
        """Whether each part's first events were read."""
        self.read(40)
        return all(len(self.numbers[part]) >= most for part in PARTS)


@pytest.mark.long
@pytest.mark.cpu(60)
def test_a_stream_in_parts_is_one_stream_while_its_functions_are_killed(tmp_path: Path) -> None:
    """POST starts all, pages under one position hold each event once and in order, DELETE stops all."""
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "feed.toml").write_text(PROFILE)
    with running(tmp_path, STREAMKEEPER_PROFILES=str(tmp_path / "profiles")) as service:
        assert service.ask("GET", "feed")[0] == 404
        started = service.post("feed")
        assert [one["stream"] for one in started["parts"]] == PARTS
        assert service.reaches("running", "feed")
        assert (started["already_running"], service.post("feed")["already_running"]) == (False, True)
        reader = Reader(service)
        assert until(lambda: reader.has(10), 60)
        killed = service.kill()
        assert len(killed) >= 3
        assert until(lambda: reader.has(60), 120)
        assert service.reaches("running", "feed")
        status, whole = service.ask("GET", "feed")
        assert (status, [one["stream"] for one in whole["parts"]]) == (200, PARTS)
        assert whole["verdict"].startswith("3 of 3 parts connected.")
        assert whole["coverage"]["connections"] >= 6
        gaps = service.ask_at("GET", "connections/feed/gaps?limit=2")[1]["gaps"]
        assert {gap["stream"] for gap in gaps} <= set(PARTS)
        rows = service.ask_at("GET", "connections")[1]["streams"]
        assert [row["stream"] for row in rows] == ["feed", *PARTS]
        assert service.ask_at("GET", "connections/feed/timeline")[0] == 409
        assert service.ask("DELETE", "feed")[1]["stream"] == "feed"
        assert service.reaches("stopped", "feed", *PARTS)
        while reader.read(200):
            pass
        for part in PARTS:
            # In the order of their arrival, each once; what is stored is what was read.
            assert reader.numbers[part] == service.numbers(part)
            first = min(reader.numbers[part])
            assert sorted(reader.numbers[part]) == list(range(first, first + len(reader.numbers[part])))
