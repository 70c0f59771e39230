"""Profiles that deliver, through the whole local service: stored events arrive at real consumers."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests import projects
from tests.console.chromium import chromium
from tests.handlers.deliver import rigs
from tests.harness import Service, running
from tests.local.support import client, until

# Each sink is shown at a real consumer by tests/handlers/deliver, the table's stream by tests/local/service.
pytestmark = pytest.mark.long
ITEMS, LOG, CALLS = "orders:a", "journal:a", "calls:a"
# Once in a function's life it fails at each fiftieth key, and reports to a listener what it accepted.
CONSUMER = """
import json, os, urllib.request
failed = set()
def handler(call, context):
    taken = []
    for event in call["events"]:
        if int(event["key"]) % 50 == 0 and event["key"] not in failed:
            failed.add(event["key"])
            tell({**call, "events": taken, "failed": event["key"]})
            return {"batchItemFailures": [{"itemIdentifier": event["key"]}]}
        taken.append(event)
    tell({**call, "events": taken, "failed": None})
def tell(said):
    request = urllib.request.Request(os.environ["SEEN_AT"], data=json.dumps(said).encode(), method="POST")
    urllib.request.urlopen(request, timeout=20).close()
"""
PROFILE = """
address = "${UPSTREAM_DEMO}/demo:{streamId}"
allow_private = true
framing = "sse"
stall_after_s = 10
overlap = "evicts"
resume = { header = "Last-Event-ID", reach_s = 600 }
"""


@dataclass(frozen=True)
class Story:
    """What was stored and what arrived; `status` is the answer of GET, `coming` grows with what the webhook gets."""

    stored: list[str]
    called: list[str]
    calls: list[dict[str, Any]]
    coming: list[dict[str, Any]]
    status: dict[str, Any]
    service: Service


def copied(folder: Path, hook: str) -> Path:
    """Return a copy of the project with three profiles that deliver."""
    projects.copied(folder)
    streams = folder / "env" / "streams"
    webhook = f'{{ webhook = "{hook}", secret = "${{secret:hook}}", allow_private = true }}'
    (streams / "orders.toml").write_text(f'{PROFILE}deliver = [{{ sqs = "orders.fifo" }}, {webhook}]\n')
    log = 'store = "log"\nflush_s = 1\n'
    (streams / "calls.toml").write_text(f'{PROFILE}deliver = {{ lambda = "consumer" }}\n')
    (streams / "journal.toml").write_text(f'{PROFILE}{log}deliver = {{ s3 = "lake", prefix = "raw/", wait_s = 1 }}\n')
    return folder


def keys(service: Service, stream_id: str = ITEMS) -> list[str]:
    """Return the items' keys in order, read from the table, because the function behind GET is killed too."""
    return [item["SK"] for item in sorted(service.items("events", stream_id), key=lambda item: str(item["position"]))]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Yield the story of two streams that run for a while; meanwhile every function is killed once."""
    folder = tmp_path_factory.mktemp("delivery")
    with rigs.listening(rigs.is_signed) as (at, hook), rigs.listening(lambda *_: True) as (calls_at, calls):
        project = copied(folder / "project", f"{at}/hook")
        with running(folder, project) as service:
            endpoint = f"http://127.0.0.1:{service.port + 1}"
            sqs, s3 = client("sqs", endpoint), client("s3", endpoint)
            client("secretsmanager", endpoint).create_secret(Name="/streamkeeper/test/hook", SecretString=rigs.SECRET)
            arns = [service.post(stream_id)["executionArn"] for stream_id in (ITEMS, LOG, CALLS)]
            assert until(lambda: len(keys(service)) > 5, 30), service.log
            # The queue, the bucket and the function are created late: until then these sinks are missing.
            assert until(lambda: any(row["failed"] for row in service.ask("GET", ITEMS)[1]["delivery"]), 60), (
                service.log
            )
            url = rigs.fifo(sqs, "orders.fifo")
            s3.create_bucket(Bucket="lake")
            rigs.created(endpoint, "consumer", CONSUMER, SEEN_AT=calls_at)
            assert until(lambda: min(len(hook), len(calls)) > 5, 60), service.log
            service.kill()
            before = len(keys(service))
            assert until(lambda: len(keys(service)) > before + 5, 60), service.log
            for stream_id, arn in zip((ITEMS, LOG, CALLS), arns, strict=True):
                service.ask("DELETE", stream_id)
                assert until(lambda: service.execution(arn)["status"] != "RUNNING", 60)  # noqa: B023
            queue: list[dict[str, Any]] = []
            seen: dict[str, Any] = {}

            def of(events: list[dict[str, Any]]) -> set[str]:
                return {one["key"] for one in events}

            # The other lane's function, if there is one, continues to store until it sees the stop.
            def arrived() -> bool:
                queue.extend(json.loads(body) for body in rigs.receive_all(sqs, url))
                seen.update(stored=keys(service), called=keys(service, CALLS), calls=list(calls))
                called = set[str]().union(*(of(call["events"]) for call in seen["calls"]))
                try:
                    is_logged = of(rigs.lines(s3, "lake")) == of(service.events(LOG, 1000))
                except KeyError:
                    return False  # The killed function behind GET had not started again within a request's time.
                return is_logged and called == set(seen["called"]) and of(queue) == of(hook) == set(seen["stored"])

            # In the queue, at the webhook and in the bucket, although each function was killed.
            assert until(arrived, 120), service.log
            yield Story(**seen, coming=hook, status=service.ask("GET", ITEMS)[1], service=service)


def test_a_function_gets_every_event_and_failed_ones_again(story: Story) -> None:
    """After a partial failure of a batch, the events from the first failed one on are delivered again."""
    failed = [(at, call["failed"]) for at, call in enumerate(story.calls) if call["failed"] is not None]
    assert failed
    assert {key for _, key in failed} == {key for key in story.called if int(key) % 50 == 0}
    for at, key in failed:
        assert key in {event["key"] for call in story.calls[at + 1 :] for event in call["events"]}

    def counted() -> dict[str, Any]:
        (row,) = story.service.ask("GET", CALLS)[1]["delivery"]
        return dict(row) if row["delivered"] >= len(story.called) - 1 else {}

    row = until(counted, 30)  # A worker writes its count after what it sent.
    assert row["sink"] == "lambda:consumer"
    assert (row["failed"] >= len(failed), row["dead_lettered"], row["waits"]) == (True, 0, None)


def test_the_status_and_the_command_have_a_row_for_each_sink(story: Story) -> None:
    """A row has the count of delivered events; no event waits, and none was dead-lettered."""
    (queue, hook) = rows = story.status["delivery"]
    assert (queue["sink"], hook["sink"].rpartition(":")[0]) == ("sqs:orders.fifo", "webhook:127.0.0.1")
    for row in rows:
        assert (row["delivered"] >= len(story.stored) - 1, row["dead_lettered"], row["waits"]) == (True, 0, None)
    assert queue["failed"] > 0
    rows = story.service.ask("GET", ITEMS)[1]["delivery"]
    printed = story.service.typed("status", ITEMS, "--url", f"http://127.0.0.1:{story.service.port}").stdout
    (_, *lines) = " ".join(printed.split()).split(" delivery ")  # A narrow terminal gets a line in two.
    for line, row in zip(lines, rows, strict=True):
        assert line.startswith(
            f"{row['sink']} {row['delivered']} delivered, {row['failed']} failed, "
            f"{row['dead_lettered']} dead-lettered, 0 waiting"
        )


def test_the_page_s_buttons_operate_a_sink(story: Story) -> None:
    """In Chromium a row shows what each sink got; pause, skip, resume and replay work, and a refusal appears in words.

    The page of a stream whose profile does not deliver has no such part.
    """
    service, name = story.service, next(row["sink"] for row in story.status["delivery"] if "webhook" in row["sink"])

    def row() -> dict[str, Any]:
        found: dict[str, Any] = next(one for one in service.ask("GET", ITEMS)[1]["delivery"] if one["sink"] == name)
        return found

    with chromium() as browser:
        address = f"http://127.0.0.1:{service.port}/console#/streams/{quote(ITEMS, safe='')}"
        browser.do("await page.goto(input); await page.locator('.delivery tbody tr').first().waitFor()", address)
        shown = browser.do(
            "return await page.locator('.delivery tbody tr').evaluateAll("
            "(rows) => rows.map((row) => [...row.children].slice(0, 4).map((one) => one.textContent)))"
        )
        rows = service.ask("GET", ITEMS)[1]["delivery"]
        counts = ("delivered", "failed", "dead_lettered")
        assert shown == [[one["sink"], *(f"{one[count]:,}" for count in counts)] for one in rows]
        browser.do("await page.locator('.delivery').getByLabel('Sink', { exact: true }).selectOption(input)", name)

        def pressed(button: str, said: str) -> None:
            browser.do(
                """const part = page.locator('.delivery'), asks = ['Skip one', 'Replay'].includes(input[0]);
                await part.getByRole('button', { name: input[0], exact: true }).click();
                if (asks) await page.getByRole('dialog').getByRole('button', { name: input[0] }).click();
                await part.getByText(input[1]).waitFor()""",
                [button, said],
            )

        pressed("Pause", f"{name}: paused.")
        known = len(keys(service))
        service.post(ITEMS)
        assert until(lambda: row()["waiting"] > 2, 60), service.log
        assert (row()["paused"], row()["waits"]) == (True, "paused")
        behind = keys(service)[known:]
        pressed("Skip one", f"{name}: its oldest event is skipped.")
        assert row()["skipped"] == 1
        pressed("Resume", f"{name}: resumed.")
        service.ask("DELETE", ITEMS)
        assert until(lambda: behind[1] in {one["key"] for one in story.coming}, 60), service.log
        assert behind[0] not in {one["key"] for one in story.coming}
        assert not [one for one in story.coming if "replayed" in one]
        browser.do("await page.getByLabel(/Replay from/).fill('12026-01-01T00:00')")
        pressed("Replay", "The parameter from must be an instant")
        browser.do("await page.getByLabel(/Replay from/).fill('')")
        before = set(keys(service))  # What the stream stores until it has stopped is no part of the replay.
        pressed("Replay", f"{name}: it gets the events again.")
        assert until(lambda: before <= {one["key"] for one in story.coming if one.get("replayed")}, 120), service.log
        service.post("demo")
        browser.do("await (await open({})).goto(input)", address.replace(quote(ITEMS, safe=""), "demo"))
        browser.do("await page.getByText('Dead letters').first().waitFor()")
        assert browser.do("return await page.locator('.delivery').isVisible()") is False
