"""A stream in three parts at a run: one stream to its readers, also while its functions are killed."""

import json
import time
from collections import defaultdict
from pathlib import Path
from urllib.parse import quote

import pytest

from local.api_client.command import choose_api
from local.archive import event_readers
from local.archive.run import Archive, hour_of
from local.streams import api_session
from streamkeeper import Client
from streamkeeper.archive_places import Folder
from streamkeeper.bulk import HOUR_MS
from streamkeeper.following import Following, passed_ms
from tests.console.chromium import chromium
from tests.console.page import TELEPHONE, seen_as, shown
from tests.harness import STAGE, Service, running
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
    """Reads all parts as the client does, and can begin anew from the place that it would have kept."""

    def __init__(self, service: Service) -> None:
        self._service, self._following = service, Following()
        self.numbers: dict[str, list[int]] = defaultdict(list)

    def read(self) -> bool:
        """Reads one page; returns whether there is more."""
        after = self._following.after(passed_ms())
        status, page = self._service.ask_at("GET", f"connections/feed/events?limit=300&after={quote(after)}")
        if status >= 500:
            return True  # the function that answers was killed with the others
        assert (status, page["stream"]) == (200, "feed")
        for event in self._following.take(page, passed_ms()):
            self.numbers[event["stream"]].append(json.loads(event["data"])["n"])
        return self._following.is_behind

    def begin_anew(self) -> None:
        """Continues as another reader with the kept place and the numbers of all events that were read."""
        self._following = Following(self._following.resume(self._following.place))
        before, self.numbers = self.numbers, defaultdict(list)
        while self.read():
            pass
        for part, numbers in before.items():
            known = set(numbers)
            self.numbers[part] = numbers + [one for one in self.numbers[part] if one not in known]

    def has(self, most: int) -> bool:
        """Returns whether so many events of each part were read."""
        self.read()
        return all(len(self.numbers[part]) >= most for part in PARTS)


def page_of(service: Service) -> tuple[list[str], set[str]]:
    """Returns the parts on the stream's page, which a phone shows in its width, and the parts of its events."""
    with chromium() as browser:
        shown(browser, f"http://127.0.0.1:{service.port}/console#/streams/feed")
        browser.do("await page.locator('.events .part').first().waitFor()")
        seen_as(browser, "light", TELEPHONE)
        names, of_events = (
            browser.do(f"return page.locator('{place}').allTextContents()") for place in (".parts a", ".events .part")
        )
    return names, set(of_events)


def check_archives(service: Service, folder: Path) -> None:
    """Checks that archives through the tables and the API have the listed events, and so does the client."""
    profiles = str(folder / "profiles")
    typed = service.typed("archive", "feed", "--to", str(folder / "typed"), "--tables", STREAMKEEPER_PROFILES=profiles)
    says = "feed: nothing new to archive; an hour is archived 16 minutes after its end\n"
    assert (typed.returncode, typed.stderr) == (0, says)
    listed = sorted((one["stream"], one["key"], one["data"]) for one in service.events("feed", 1000))
    place = {"PORT": str(service.port), "STREAMKEEPER_STAGE": STAGE, "STREAMKEEPER_PROFILES": profiles}
    url = f"http://127.0.0.1:{service.port}"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in place.items():
            patch.setenv(name, value)
        tables = event_readers.reader_of_stage("local")
        api = event_readers.ApiReader(api_session.ApiSession(choose_api({}, url, sign=False)))
        for name, source in (("tables", tables), ("api", api)):
            until_ms = hour_of(time.time_ns() // 1_000_000) + 2 * HOUR_MS
            Archive("feed", source, Folder(folder / name), (), lambda _: None).run(until_ms)
            read = Client(url, archive=folder / name).events("feed").to_arrow().to_pylist()
            assert sorted((row["part"], row["key"], row["data"]) for row in read) == listed
        found = Client(url, tables="local").events("feed")
        assert sorted((one.raw["stream"], one.key, one.data) for one in found) == listed


@pytest.mark.long
@pytest.mark.cpu(150)
def test_a_stream_in_parts_is_one_stream_while_its_functions_are_killed(tmp_path: Path) -> None:
    """A POST starts all parts and a DELETE stops them; a reader's one place in all parts skips no event."""
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
        names, of_events = page_of(service)
        assert (names, of_events <= set(PARTS)) == (PARTS, True)
        assert len(service.kill()) >= 3
        reader.begin_anew()
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
        reader.begin_anew()
        for part in PARTS:
            # Each event that is stored was read, once, and the upstream's numbers have no hole.
            stored = sorted(service.numbers(part))
            assert sorted(reader.numbers[part]) == stored == list(range(stored[0], stored[0] + len(stored)))
        check_archives(service, tmp_path)
