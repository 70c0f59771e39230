"""What a person does in the page, in a real Chromium with the real service; and the metrics of the run."""

import json
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from handlers.aws.lambda_environment import now_ms
from handlers.connection.effects import Progress, RecordLoss
from handlers.framing.events import StreamEvent
from handlers.store.event_items import StoragePolicy
from handlers.store.ledger_records import connection_item
from local.upstreams.behaviours import DEMOS, TRADES, TRADES_LATE_MS
from tests.console.chromium import Chromium
from tests.console.gate import gate
from tests.console.page import TELEPHONE, address, listed, seen_as, shown, store, violations
from tests.harness import Service, running
from tests.local import support
from tests.local.metrics.test_metrics import serve_collector
from tests.local_run import LocalRun


@pytest.mark.usefixtures("demo")  # a list without a stream has no table
def test_only_the_tab_keeps_the_api_key(service: LocalRun, browser: Chromium) -> None:
    """The page asks for a key if the API requires one, and rejects a wrong one. Only the session storage keeps it."""
    with gate(service.port, "right") as server:
        browser.do("await (await open({})).goto(input)", f"http://127.0.0.1:{server.port}/prod/console")
        browser.do("await page.getByLabel('API key').waitFor()")
        seen_as(browser, "dark", TELEPHONE)
        assert violations(browser) == []
        kept = browser.do(
            """await page.getByLabel('API key').fill('wrong');
            await page.keyboard.press('Enter');
            await page.getByText(/This key is refused/).waitFor();
            await page.getByLabel('API key').fill('schl\u00fcssel\u20ac');
            await page.keyboard.press('Enter');
            await page.locator('input:invalid').waitFor();
            await page.getByLabel('API key').fill('right');
            await page.keyboard.press('Enter');
            await page.locator('.streams').waitFor();
            const stored = await page.evaluate(
              () => [{ ...sessionStorage }, { ...localStorage }, document.cookie, location.href]);
            return [...stored, (await context.cookies()).length]"""
        )
        assert kept == [{"streamkeeper-key": "right"}, {}, "", f"http://127.0.0.1:{server.port}/prod/console", 0]
        browser.do("await page.getByRole('button', { name: 'Forget the key' }).click()")
        browser.do("await page.getByLabel('API key').waitFor()")
        assert browser.do("return page.evaluate(() => sessionStorage.length)") == 0


def test_the_keyboard_reaches_everything(service: LocalRun, browser: Chromium, demo: str) -> None:
    """Tab reaches every button, Escape answers a question with no, and a skip button leads past the list of events."""
    shown(browser, address(service, demo))
    steps = browser.do(
        """const names = [];
        for (let step = 0; step < 9; step += 1) {
          await page.keyboard.press('Tab');
          names.push(await page.evaluate(() => document.activeElement.textContent.trim()));
        }
        await page.getByRole('button', { name: 'Stop' }).focus();
        await page.keyboard.press('Enter');
        await page.getByRole('dialog').waitFor();
        await page.keyboard.press('Escape');
        await page.getByRole('dialog').waitFor({ state: 'hidden' });
        names.push(await page.evaluate(() => document.activeElement.textContent));
        await page.locator('.events li').first().waitFor();
        await page.getByRole('button', { name: 'Export' }).focus();
        await page.keyboard.press('Tab');
        await page.keyboard.press('Enter');
        names.push(await page.evaluate(() => document.activeElement.textContent));
        return names"""
    )
    assert [name for name in steps if name][:4] == ["Skip to the content", "Streamkeeper", "← Streams", "Stop"]
    assert steps[-2:] == ["Stop", "End of the events."]
    assert service.ask("GET", demo)[1]["stop_requested_at"] is None


def stored_by_metrics(service: Service, stream_id: str) -> float:
    """Returns how many events of the stream were stored, by the run's metrics; 0 if the stream has no metrics yet."""
    with urllib.request.urlopen(f"http://127.0.0.1:{service.port}/metrics", timeout=120) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        families = {one.name: one.samples for one in text_string_to_metric_families(answer.read().decode())}
    samples = families.get("streamkeeper_events_stored", ())
    return next((one.value for one in samples if one.labels == {"stream": stream_id}), 0.0)


@pytest.mark.long
@pytest.mark.cpu(4)
def test_the_metrics_are_sent_to_opentelemetry(tmp_path: Path) -> None:
    """A run that knows a collector's address sends it the metrics under the same names."""
    with (
        serve_collector() as (collector, received),
        running(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=collector, OTEL_METRIC_EXPORT_INTERVAL="1000") as service,
    ):
        service.post("demo")
        assert support.until(lambda: stored_by_metrics(service, "demo"), 30)
        sent = len(received)
        assert support.until(lambda: len(received) > sent + 1, 30)
    _, path, _, text = received[-1]
    names = {one["name"] for one in json.loads(text)["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]}
    assert (path, "streamkeeper.events.stored" in names) == ("/v1/metrics", True)


def test_redrive_puts_back_the_dead_letters_that_can_be_stored(service: LocalRun, browser: Chromium, demo: str) -> None:
    """Before it starts, the page says which letters it cannot put back; afterwards how many were left and why."""
    event = {"size_bytes": 5_000_000, "head": "YQ=="}
    fields = {"stream": demo, "key": "large", "reason": "the event is too large", "fence": 1, "event": event}
    sqs = service.aws("sqs")
    queue = next(url for url in sqs.list_queues()["QueueUrls"] if "dead-letters" in url)
    sqs.send_message(QueueUrl=queue, MessageBody=json.dumps(fields))
    shown(browser, address(service, demo))
    said = browser.do(
        """await page.getByRole('button', { name: 'Redrive' }).click();
        const can = await page.getByRole('dialog').textContent();
        await page.getByRole('dialog').getByRole('button', { name: 'Redrive' }).click();
        const done = page.getByText(/handled, /);
        await done.waitFor();
        return [can, await done.textContent()]"""
    )
    sqs.purge_queue(QueueUrl=queue)
    assert "It cannot put back an event that was longer than max_frame_bytes" in said[0]
    assert said[1] == "0 messages handled, 1 left (1: only the first 1 of its 5000000 bytes were kept)."


def test_a_replay_asks_first(service: LocalRun, browser: Chromium) -> None:
    """An empty field means all events, and the question says so. Going back or an incomplete instant sends nothing."""
    shown(browser, address(service))
    browser.do("await page.evaluate(() => { location.hash = '#/runbook'; })")
    said, asked = browser.do(
        """await page.evaluate(async () => {
          const { deliveryPart } = await import('./console/delivery.js');
          const { node, show } = deliveryPart('demo');
          show({ delivery: [{ sink: 'sqs:a', delivered: 0, failed: 0, dead_lettered: 0, waiting: 0 }] });
          document.getElementById('main').append(node);
        });
        await page.getByLabel('Replay from').press('1'); // a month alone
        await page.getByRole('button', { name: 'Replay' }).click();
        const early = await page.getByRole('dialog').count();
        await page.getByLabel('Replay from').fill('');
        await page.getByRole('button', { name: 'Replay' }).click();
        const said = await page.getByRole('dialog').textContent();
        await page.goBack();
        await page.getByRole('dialog').waitFor({ state: 'hidden' });
        return [said, [early, ...page.asked.filter((url) => url.includes('/sinks'))]]"""
    )
    assert ("Replay for sqs:a?" in said, "All stored events are sent again." in said, asked) == (True, True, [0])


def test_a_stream_is_stopped(service: LocalRun, browser: Chromium, demo: str) -> None:
    """Stop asks first. After a no nothing happens; after a yes the stream is stopped and stays in the list.

    Until the API has answered, the page says what is under way.
    """
    shown(browser, address(service, demo))
    browser.do(
        """await page.getByRole('button', { name: 'Stop' }).click();
        await page.getByRole('button', { name: 'Cancel' }).click()"""
    )
    assert service.ask("GET", demo)[1]["stop_requested_at"] is None
    browser.do(
        """let release;
        const held = new Promise((resolve) => { release = resolve; });
        await page.route('**/connections/*', async (route) => {
          if (route.request().method() === 'DELETE') await held;
          await route.continue();
        });
        await page.getByRole('button', { name: 'Stop' }).click();
        await page.getByRole('dialog').getByRole('button', { name: 'Stop' }).click();
        await page.getByText('Stopping …').waitFor();
        release();
        await page.locator('h1 + .status', { hasText: 'Stopped' }).waitFor();
        await page.getByText('Stopping …').waitFor({ state: 'detached' });
        await page.unrouteAll();
        await page.getByText(/^Stopped on request at /).waitFor();
        await page.getByRole('button', { name: 'Start from its cursor' }).waitFor()"""
    )
    assert service.ask("GET", demo)[1]["status"] == "stopped"
    browser.do(
        """await page.getByText('← Streams').click();
        await page.getByLabel('Search').fill(input);
        await page.getByRole('link', { name: input }).waitFor()""",
        demo,
    )


STREAM = "demo-trades:button"


def test_a_gap_is_repaired_by_its_button(service: LocalRun, browser: Chromium) -> None:
    """Once the function has fetched the missed events, the row says so, the button is gone, the picture is marked."""
    # Old enough that the address has them, and so young that it does not forget them meanwhile.
    newest = (now_ms() - 2 * TRADES_LATE_MS) // DEMOS["demo-trades"].interval_ms
    rest = f"{service.variables['UPSTREAM_DEMO']}{TRADES}?after={newest - 6}&before={newest + 1}"
    with urllib.request.urlopen(rest) as answer:
        trades = {str(one["id"]): json.dumps(one) for one in json.load(answer)["trades"]}
    keys = [*trades]
    edges = [*keys[:2], *keys[4:]]
    # A minute ago the upstream said that it lost events, between the first two of these and the others.
    own, lost_ms = store(service), now_ms() - 60_000
    own.ledger.record_loss(STREAM, RecordLoss(1, 1, lost_ms, lost_ms + 1_000, "loss"))
    times = (lost_ms - 2_000, lost_ms - 1_000, lost_ms + 2_000, lost_ms + 3_000)
    events = [StreamEvent(key, trades[key], None, None, None, at) for key, at in zip(edges, times, strict=True)]
    own.write(STREAM, 1, 0, events, StoragePolicy())
    opened_ms, closed_ms = lost_ms - 4_000, lost_ms + 5_000
    over = Progress(1, opened_ms, opened_ms, closed_ms, closed_ms, "ended", live_ms=opened_ms)
    own.ledger.save(STREAM, connection_item(over, lane="A", execution="e", request_id="r"))
    listed(service, [STREAM], fence={"N": "1"})
    assert [gap["state"] for gap in service.ask("GET", f"{STREAM}/gaps")[1]["gaps"]] == ["lost"]
    shown(browser, address(service, STREAM))
    found = browser.do(
        """const table = page.locator('details', { hasText: 'Gaps as a table' });
        await table.locator('summary').click();
        const row = table.locator('tbody tr');
        const button = row.getByRole('button', { name: /^Repair the gap from/ });
        await button.click();
        await row.getByText('nothing: it was repaired').waitFor().catch(async () => {
          throw new Error(await row.innerText());
        });
        await button.waitFor({ state: 'detached' });
        return await page.locator('svg.lanes g > rect.gap.repaired').count()"""
    )
    assert found == 1
    [gap] = service.ask("GET", f"{STREAM}/gaps")[1]["gaps"]
    assert (gap["state"], gap["repair"]["stored"]) == ("repaired", 2)
    stored = {item["SK"]: item["data"] for item in service.items("events", STREAM)}
    assert {key: json.loads(body) for key, body in stored.items()} == {
        key: json.loads(body) for key, body in trades.items()
    }
