"""The page in a real Chromium, served by the real service: what a person sees and does there."""

import json
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from prometheus_client.parser import text_string_to_metric_families

from handlers.framing.events import StreamEvent
from handlers.store.connection_store import Store
from handlers.store.event_items import StoragePolicy
from local import stages
from tests.console.chromium import Chromium
from tests.console.gate import gate
from tests.harness import STAGE, Service, running
from tests.local import support
from tests.local.metrics.test_metrics import receiver
from tests.local_run import LocalRun

# How many streams the page requests at a time, and how many it shows.
A_PAGE, SHOWN = 100, 50
HOSTILE = "demo:<img src=x onerror=\"document.title='run'\">\"&'"
BODY = "<script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"
AWAY = "absent:away"
TELEPHONE = {"width": 390, "height": 860}
# Every part of a stream's view is open and has something to show.
READY = """await page.locator('.handover', { hasText: 'Last handover' }).waitFor();
    for (const name of ['More figures', 'State machine']) await page.locator('summary', { hasText: name }).click();
    await page.getByText(/Now in/).waitFor();
    await page.locator('.events li').first().waitFor();
    await page.locator('.figure.cost .value', { hasText: '$' }).waitFor()"""
# The stream that every view is shown of, and those that stand in the table alone.
DEMO = "demo:console"
LISTED: list[str] = []
# The four ways in which a view is looked at; the default run has the list light and wide, a stream dark and narrow.
WAYS = tuple((scheme, width) for scheme in ("light", "dark") for width in (1200, 390))
ALL_WAYS = pytest.param(WAYS, marks=pytest.mark.long)
# Waits until the newest event is another than at first.
ANOTHER = """const first = await page.locator('.events .body').first().textContent();
    await page.waitForFunction((text) => document.querySelector('.events .body').textContent !== text, first);"""


@pytest.fixture(scope="module")
def service(local_run: LocalRun, browser: Chromium) -> Iterator[LocalRun]:
    """The shared run; what a test has put into its table is removed."""
    assert browser  # without one nothing is started
    yield local_run
    table, client = stages.names(STAGE)["control_table"], local_run.aws("dynamodb")
    for stream_id in LISTED:
        client.delete_item(TableName=table, Key={"PK": {"S": stream_id}, "SK": {"S": "lease"}})


@pytest.fixture(scope="module")
def demo(service: LocalRun) -> str:
    """The stream DEMO, which runs; the first test has started it by the page."""
    service.post(DEMO)
    return DEMO


def address(service: LocalRun, stream_id: str = "") -> str:
    """Where the page shows the list, or a stream."""
    return f"http://127.0.0.1:{service.port}/console#/{view(stream_id)}"


def view(stream_id: str) -> str:
    """What follows the page's address for a stream, or for the list."""
    return f"streams/{quote(stream_id, safe='')}" if stream_id else ""


def shown(browser: Chromium, url: str) -> None:
    """Opens the page anew, light and wide, and waits until it is live."""
    browser.do(
        """await page.goto('about:blank');
        page.said.length = page.asked.length = 0;
        await page.setViewportSize({ width: 1200, height: 860 });
        await page.emulateMedia({ colorScheme: 'light', reducedMotion: 'reduce' });
        await page.goto(input);
        await page.locator('#link[data-state=live]').waitFor()""",
        url,
    )


def seen_as(browser: Chromium, scheme: str, viewport: dict[str, int]) -> None:
    """Shows the page that is open light or dark, in a window of this size, in which it fits."""
    browser.do(
        "await page.setViewportSize(input[0]); await page.emulateMedia({ colorScheme: input[1] })", [viewport, scheme]
    )
    browser.do(
        "await page.waitForFunction((width) => document.documentElement.scrollWidth <= width, input)", viewport["width"]
    )


def violations(browser: Chromium, part: str = "html") -> Any:
    """What axe finds in a part of the page as it is; it is run from outside: the page's policy lets no script in."""
    return browser.do(
        """const session = await context.newCDPSession(page);
        await session.send('Runtime.evaluate', { expression: axe });
        const { result } = await session.send('Runtime.evaluate', {
          expression: `axe.run('${input}').then(({ violations }) => JSON.stringify(violations.map(
            (one) => [one.id, one.nodes.map((node) => node.html)])))`,
          awaitPromise: true,
        });
        await session.detach();
        return JSON.parse(result.value)""",
        part,
    )


def store(service: LocalRun) -> Store:
    """The tables of the service, to write what no demonstration upstream sends."""
    names = stages.names(STAGE)
    return Store(
        service.aws("dynamodb"),
        lambda: service.aws("sqs"),
        events_table=names["events_table"],
        control_table=names["control_table"],
        dead_letter_queue_url="http://127.0.0.1:1/",
        events_bucket="",
        s3=lambda: None,
    )


def listed(service: LocalRun, ids: Sequence[str], **more: Any) -> None:
    """Streams that were started once and that no execution runs."""
    LISTED.extend(ids)
    lease = {"SK": {"S": "lease"}, "generation": {"N": "1"}, "fence": {"N": "0"}} | more
    puts = [{"PutRequest": {"Item": {"PK": {"S": each}, **lease}}} for each in ids]
    requests = {stages.names(STAGE)["control_table"]: puts}
    for first in range(0, len(puts), 25):
        part = {name: items[first : first + 25] for name, items in requests.items()}
        assert not service.aws("dynamodb").batch_write_item(RequestItems=part)["UnprocessedItems"]


def test_a_stream_is_started_and_watched(service: LocalRun, browser: Chromium) -> None:
    """Start leads to the stream, and its handover is seen as it happens."""
    shown(browser, address(service))
    browser.do(
        """await page.getByLabel('Start a stream').fill(input);
        await page.getByRole('button', { name: 'Start', exact: true }).click();
        await page.getByRole('heading', { level: 1, name: input }).waitFor();
        await page.locator('h1 + .status', { hasText: 'Running' }).waitFor();
        const handover = /lane A took over from lane B; both were connected for/;
        await page.locator('.handover', { hasText: handover }).waitFor()""",
        DEMO,
    )
    assert service.ask("GET", DEMO)[1]["status"] == "running"
    kinds, lit, asked_before = browser.do(
        """const marks = page.locator('svg.lanes rect[class]');
        const kinds = await marks.evaluateAll((all) => all.map((one) => one.getAttribute('class')));
        const machine = page.asked.filter((url) => url.endsWith('/machine')).length;
        await page.getByRole('heading', { name: 'State machine' }).click();
        await page.getByText(/Now in .*Connect/).waitFor();
        const lit = await page.locator('.graph .lit:not(:has(.group)) > text').allTextContents();
        return [[...new Set(kinds)].sort(), lit, machine]"""
    )
    # The machine is requested once somebody opens it.
    assert asked_before == 0
    assert {"open", "both", "wait"} <= set(kinds)
    assert {name[:-2] for name in lit} <= {"Connect", "Wait"}


def test_an_event_is_read_and_found(service: LocalRun, browser: Chromium, demo: str) -> None:
    """The newest events come by themselves; one that is opened stays, and is what the API has; a search finds it.

    It is laid out, and as it came at the press of a button; the file that Export saves has it.
    """
    shown(browser, address(service, demo))
    key, laid_out, body, (name, lines), left = browser.do(
        """const item = page.locator('.events details').first();
        await item.waitFor();
        const node = await item.elementHandle();
        await node.evaluate((one) => { one.querySelector('summary').focus(); one.open = true; });
        const key = await node.evaluate((one) => new Promise((done) => {
          const look = () => {
            const facts = [...one.querySelectorAll('dl div')];
            if (!facts.length) return setTimeout(look, 20);
            return done(facts.find((each) => each.firstChild.textContent === 'key').lastChild.textContent);
          };
          look();
        }));
        const first = await page.locator('.events .body').first().textContent();
        const isOther = (text) => document.querySelector('.events .body').textContent !== text;
        await page.waitForFunction(isOther, first);
        const laidOut = await node.evaluate((one) => one.open
          && document.activeElement === one.querySelector('summary') && one.querySelector('pre').textContent);
        await (await node.$('text=As it came')).click();
        const body = await node.evaluate((one) => one.querySelector('pre').textContent);
        await page.getByLabel('Search the last events').fill(key);
        await page.getByText(/1 of .* match/).waitFor();
        const download = page.waitForEvent('download');
        await page.getByRole('button', { name: 'Export' }).click();
        const stream = await (await download).createReadStream();
        const pieces = [];
        for await (const piece of stream) pieces.push(piece);
        const saved = [(await download).suggestedFilename(), Buffer.concat(pieces).toString()];
        return [key, laidOut, body, saved, await page.locator('.events li').count()]"""
    )
    stored = next(one for one in service.events(demo, 1000) if one["key"] == key)
    assert (left, stored["data"]) == (1, body)
    assert laid_out == json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    assert (name, [json.loads(line) for line in lines.splitlines()]) == ("demo-console.ndjson", [stored])


def test_json_is_laid_out_as_it_was_written(service: LocalRun, browser: Chromium) -> None:
    """A number keeps its digits; what is no object and no list stays as it came."""
    texts = ['{"n": 17952311063000000001, "a": [1.50, {}, [], "x,{}\\""], "e": 1E5}', "[]", "12", "a, b", '{"a": 1']
    shown(browser, address(service))
    laid_out = browser.do(
        """return page.evaluate(async (texts) => {
          const { pretty } = await import('./console/pretty.js');
          return texts.map(pretty);
        }, input)""",
        texts,
    )
    first = '{\n  "n": 17952311063000000001,\n  "a": [\n    1.50,\n    {},\n    [],\n    "x,{}\\""\n  ],\n  "e": 1E5\n}'
    assert laid_out == [first, "[]", None, None, None]


def stored_by_metrics(service: Service, stream_id: str) -> float:
    """How many events of the stream were stored, as the run tells Prometheus."""
    with urllib.request.urlopen(f"http://127.0.0.1:{service.port}/metrics", timeout=120) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        families = {one.name: one.samples for one in text_string_to_metric_families(answer.read().decode())}
    samples = families["streamkeeper_events_stored"]
    return next((one.value for one in samples if one.labels == {"stream": stream_id}), 0.0)


def test_the_metrics_are_told_to_prometheus(service: LocalRun, demo: str) -> None:
    """The run serves what the API says was stored."""
    assert support.until(lambda: stored_by_metrics(service, demo), 10)
    assert stored_by_metrics(service, demo) <= service.ask("GET", demo)[1]["counts"]["stored"]


@pytest.mark.long
@pytest.mark.cpu(4)
def test_the_metrics_are_sent_to_opentelemetry(tmp_path: Path) -> None:
    """A run that has a collector's address sends it the same names."""
    with (
        receiver() as (collector, received),
        running(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=collector, OTEL_METRIC_EXPORT_INTERVAL="1000") as service,
    ):
        service.post("demo")
        assert support.until(lambda: stored_by_metrics(service, "demo"), 30)
        sent = len(received)
        assert support.until(lambda: len(received) > sent + 1, 30)
    _, path, _, text = received[-1]
    names = {one["name"] for one in json.loads(text)["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]}
    assert (path, "streamkeeper.events.stored" in names) == ("/v1/metrics", True)


def test_a_server_that_is_lost_and_comes_back(service: LocalRun, browser: Chromium, demo: str) -> None:
    """The page says so, keeps what it shows, and goes on by itself; nothing is asked of anybody else.

    An EventSource of the browser's own goes on behind its last event: none is missing and none comes twice.
    """
    with gate(service.port) as server:
        shown(browser, f"http://127.0.0.1:{server.port}/prod/console#/{view(demo)}")
        browser.do(READY)
        assert browser.do(
            """return page.evaluate((id) => new Promise((done) => {
              window.seen = [];
              window.source = new EventSource(`connections/${encodeURIComponent(id)}/events`);
              window.source.onmessage = ({ data, lastEventId }) => {
                window.seen.push(lastEventId);
                if (JSON.parse(data).position !== lastEventId) window.seen.push('not its own position');
                if (window.seen.length === 10) done(true);
              };
            }), input)""",
            demo,
        )
        with server.lost():
            said = browser.do(
                """await page.locator('#link[data-state=lost]').waitFor();
                return [await page.locator('#link').textContent(), await page.locator('.events li').count() > 0]"""
            )
        assert "The server does not answer. Asked again in" in said[0]
        assert said[1]
        browser.do("await page.locator('#link[data-state=live]').waitFor()")
        assert browser.do("return page.locator('#announce').textContent()") != ""
        seen = browser.do(
            """const before = await page.evaluate(() => window.seen.length);
            await page.waitForFunction((count) => window.seen.length > count + 10, before);
            return page.evaluate(() => { window.source.close(); return window.seen; })"""
        )
        asked = browser.do("return page.asked")
        browser.do("await page.goto('about:blank')")
    stored = [event["position"] for event in service.events(demo, 1000)]
    # Written before one that was there already: an open answer brings it later, under the last id.
    assert len(seen) == len(set(seen))
    assert seen == stored[: len(seen)]
    assert {url.split("/")[2] for url in asked} == {f"127.0.0.1:{server.port}"}


def test_events_come_by_themselves_until_the_list_is_paused(service: LocalRun, browser: Chromium, demo: str) -> None:
    """Without a key one open answer brings them; paused, the list stays as it is, and what came is there after."""
    shown(browser, address(service, demo))
    browser.do("await page.locator('.events li').first().waitFor()")
    before, paused, after, asked = browser.do(
        """const positions = () => page.locator('.events .body').allTextContents();
        const first = (await positions())[0];
        await page.waitForFunction((text) => document.querySelector('.events .body').textContent !== text, first);
        await page.getByRole('button', { name: 'Pause' }).click();
        const before = await positions();
        await page.waitForResponse((answer) => answer.url().endsWith('/timeline'));
        await page.waitForResponse((answer) => answer.url().endsWith('/timeline'));
        const paused = await positions();
        await page.getByRole('button', { name: 'Go on' }).click();
        await page.waitForFunction((text) => document.querySelector('.events .body').textContent !== text, before[0]);
        const after = await positions();
        return [before, paused, after, page.asked.filter((url) => url.includes('/events?limit=')).length]"""
    )
    assert paused == before
    new = after[: after.index(before[0])]
    assert len(new) >= 1
    assert after[len(new) :] == before[: len(after) - len(new)]
    # The first page; what follows comes on the answer that stays open.
    assert asked == 1


def test_why_a_stream_is_not_connected(service: LocalRun, browser: Chromium) -> None:
    """The verdict says why; a panel has since when, the next try and what to do, and leads to the runbook.

    Each failed attempt is a tick, and the time since the start is a gap. The panel is gone when the stream is stopped.
    """
    service.post(AWAY)
    assert support.until(lambda: service.ask("GET", AWAY)[1].get("last_error"), 30)
    shown(browser, address(service, AWAY))
    seen_as(browser, "dark", TELEPHONE)
    said = browser.do(
        """await page.getByRole('heading', { name: 'Why, and what to do' }).waitFor();
        await page.getByText(/failures in a row since/).waitFor();
        await page.getByText('Never connected, so no event yet').waitFor();
        return [await page.locator('.verdict').textContent(), await page.locator('.trouble .lead').textContent(),
          await page.locator('svg.lanes g > rect.failed').count(),
          await page.locator('svg.lanes g > rect.gap.open').count()]"""
    )
    assert said[0] == "Not connected yet: nothing listens at the address."
    assert said[1] == "Check the address in its profile, and whether the upstream is up. Runbook: Unconnected"
    assert (said[2] > 1, said[3]) == (True, 1)
    assert violations(browser) == []
    browser.do(
        """await page.getByRole('link', { name: 'Runbook: Unconnected' }).click();
        await page.getByText(/A stream that should be connected has not been/).waitFor()"""
    )
    assert violations(browser) == []
    browser.do("await page.goBack(); await page.locator('.trouble .lead').waitFor()")
    service.ask("DELETE", AWAY)
    browser.do("await page.locator('.trouble').waitFor({ state: 'hidden' })")


@pytest.mark.long
def test_events_of_a_log_come_as_others_do(service: LocalRun, browser: Chromium) -> None:
    """The first ones, and then others: they follow."""
    service.post("demo-log:console")
    shown(browser, address(service, "demo-log:console"))
    browser.do(f"await page.locator('.events li').first().waitFor(); {ANOTHER}")


def test_a_stream_without_an_order_says_so(service: LocalRun, browser: Chromium) -> None:
    """Its events stand by key."""
    own = store(service)
    own.claim("demo:unordered", execution="", holder="B/request-1", order="none")
    events = [StreamEvent(key, f"body of {key}", None, None, None, 1) for key in ("c", "a", "b")]
    own.write("demo:unordered", 1, 0, events, StoragePolicy(order="none"))
    shown(browser, address(service, "demo:unordered"))
    seen = browser.do(
        """await page.getByText('3 events, by key: this stream keeps no order of arrival').waitFor();
        return page.locator('.events .body').allTextContents()"""
    )
    assert seen == ["body of a", "body of b", "body of c"]


@pytest.mark.parametrize("ways", [WAYS[:1], ALL_WAYS], ids=len)
def test_axe_finds_nothing_in_the_list(service: LocalRun, browser: Chromium, ways: tuple[tuple[str, int], ...]) -> None:
    """Light and dark, wide and on a telephone, where it fits."""
    shown(browser, address(service))
    browser.do("await page.locator('.streams tbody tr').first().waitFor()")
    for scheme, width in ways:
        seen_as(browser, scheme, {"width": width, "height": 860})
        assert violations(browser) == [], (scheme, width)
    assert browser.do("return page.said") == []


def test_hostile_ids_and_events_are_text(service: LocalRun, browser: Chromium) -> None:
    """Nothing of an id or a body is run or becomes an element, in the list and in the stream's own view."""
    own = store(service)
    # No execution runs it: what an upstream sends meanwhile might push the event out of the newest.
    listed(service, [HOSTILE])
    own.write(HOSTILE, 1, 0, [StreamEvent("<b>key</b>", BODY, "<i>id</i>", "<u>name</u>", None, 1)])
    shown(browser, address(service))
    browser.do("await page.getByRole('link', { name: input, exact: true }).click()", HOSTILE)
    seen = browser.do(
        """await page.getByRole('heading', { level: 1, name: input, exact: true }).waitFor();
        await page.locator('.events summary', { hasText: '<script>' }).click();
        await page.locator('.events pre').waitFor();
        const elements = await page.locator('img, u, i, b, main script').count();
        return [await page.locator('.events pre').textContent(), elements, await page.title(), page.said]""",
        HOSTILE,
    )
    assert seen == [BODY, 0, f"{HOSTILE} · Streamkeeper", [one for one in seen[3] if "Failed to load resource" in one]]


@pytest.mark.parametrize("ways", [WAYS[3:], ALL_WAYS], ids=len)
def test_axe_finds_nothing(service: LocalRun, browser: Chromium, ways: tuple[tuple[str, int], ...], demo: str) -> None:
    """In a stream's view with everything open, in the question before a stop, light and dark, wide and narrow."""
    shown(browser, address(service, demo))
    browser.do(READY)
    browser.do(
        """await page.getByText('Connections as a table').click();
        await page.locator('.events summary').first().click();
        await page.getByRole('button', { name: 'Look into the queue' }).click();
        await page.getByText(/of this stream/).waitFor();
        const one = await page.locator('.events .body').first().textContent();
        await page.getByLabel('Search the last events').fill(one);
        await page.getByText(/1 of .* match/).waitFor()"""
    )  # axe looks at each of three hundred events for long, and they look alike
    for scheme, width in ways:
        seen_as(browser, scheme, {"width": width, "height": 860})
        assert violations(browser) == [], (scheme, width)
        browser.do("await page.getByRole('button', { name: 'Stop' }).click(); await page.getByRole('dialog').waitFor()")
        assert violations(browser, "dialog") == [], (scheme, width)
        browser.do("await page.keyboard.press('Escape'); await page.getByRole('dialog').waitFor({state: 'hidden'})")
    assert browser.do("return page.said") == []


def test_a_key_is_asked_for_and_kept_by_the_tab_alone(service: LocalRun, browser: Chromium) -> None:
    """Where the API asks for one; a wrong one is refused in words; only the session storage has the right one."""
    with gate(service.port, "right") as server:
        browser.do("await (await open({})).goto(input)", f"http://127.0.0.1:{server.port}/prod/console")
        browser.do("await page.getByLabel('API key').waitFor()")
        seen_as(browser, "dark", TELEPHONE)
        assert violations(browser) == []
        kept = browser.do(
            """await page.getByLabel('API key').fill('wrong');
            await page.keyboard.press('Enter');
            await page.getByText(/This key is refused/).waitFor();
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


def test_all_of_it_can_be_done_by_keyboard(service: LocalRun, browser: Chromium, demo: str) -> None:
    """Tab reaches the search, Enter starts a stream, and Escape answers the question with no."""
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
        return names"""
    )
    assert [name for name in steps if name][:4] == ["Skip to the content", "Streamkeeper", "← Streams", "Stop"]
    assert steps[-1] == "Stop"
    assert service.ask("GET", demo)[1]["stop_requested_at"] is None


def test_the_streams_of_a_function(service: LocalRun, browser: Chromium) -> None:
    """The list names their group, by which it can be searched; the page of one has the gaps of all, a mark for each."""
    now_ms = time.time_ns() // 1_000_000
    times = {"from_ms": {"N": str(now_ms - 90_000)}, "to_ms": {"N": str(now_ms - 60_000)}}
    gap = {"SK": {"S": "gap#000000000002"}, "cause": {"S": "dropped"}, "state": {"S": "open"}} | times
    listed(service, ["shared:b"], **gap)
    listed(service, ["shared:a", "shared:b"], fence={"N": "2"}, group={"S": "#7"})
    shown(browser, address(service))
    rows = browser.do(
        """await page.getByLabel('Search').fill('#7');
        await page.locator('.streams .soft', { hasText: 'group #7' }).first().waitFor();
        const chips = await page.locator('.chips').textContent();
        return [await page.locator('.streams tbody th').allTextContents(), chips]"""
    )
    assert rows == [["shared:agroup #7", "shared:bgroup #7"], "■ 2 ended"]
    shown(browser, address(service, "shared:a"))
    found = browser.do(
        """await page.getByText('It shares a function with other streams (group #7)').click();
        const row = page.locator('section[aria-label=Function] tbody tr', { hasText: 'shared:b' });
        await row.waitFor();
        const said = await page.locator('section[aria-label=Function] [role=status]').textContent();
        return [await row.locator('td').allTextContents(), await row.locator('rect').count(), said]"""
    )
    assert found[0][:3] == ["ended", "1", "30 s"]
    assert (found[1], found[2].startswith("0 of 2 streams are running, as of ")) == (1, True)
    assert violations(browser) == []
    browser.do("await page.goto('about:blank')")


@pytest.mark.parametrize("many", [105, pytest.param(1_000, marks=pytest.mark.long)])
def test_many_streams_are_listed_found_and_left_in_place(service: LocalRun, browser: Chromium, many: int) -> None:
    """The worst come first, a part at a time; an update makes no row anew and keeps the focus; chips filter."""
    listed(service, ["zzz:worst"], ending={"S": "Broken"}, ended_at_ms={"N": "1"})
    listed(service, [f"many:{number:04d}" for number in range(many)])
    shown(browser, address(service))
    first, said, height, there = browser.do(
        """await page.locator('.paging p', { hasText: /[0-9]$/ }).waitFor();
        const row = page.locator('.streams tbody tr');
        return [await row.first().textContent(), await page.locator('.paging p').textContent(),
          await page.evaluate(() => document.documentElement.scrollHeight), await row.count()]"""
    )
    rows = int(said.rpartition(" ")[2].replace(",", ""))
    assert (first.startswith("zzz:worst✕ Broken"), said, there) == (True, f"1 to {SHOWN} of {rows:,}", SHOWN)
    assert rows > many
    assert height < 5_000
    pages = -(-rows // A_PAGE)
    turns, kept, same = browser.do(
        """const row = page.locator('.streams tbody tr', { hasText: 'many:0001' });
        await row.evaluate((one) => { one.isTheSame = true; one.querySelector('a').focus(); });
        const turns = [];
        for (let turn = 0; turn <= input; turn += 1) {
          const answered = page.waitForResponse((answer) => answer.url().includes('connections?'));
          await page.evaluate(() => document.dispatchEvent(new Event('visibilitychange'))); // the next turn at once
          const answer = await answered;
          turns.push([answer.url(), answer.status()]);
        }
        const same = await row.evaluate((one) => one.isTheSame && document.activeElement === one.querySelector('a'));
        return [turns.map(([url]) => url), turns.filter(([, status]) => status === 304).length, same]""",
        pages,
    )
    # A turn asks for one page, round and round, and those that have not changed are not sent again.
    assert (len(set(turns)), turns[-1]) == (pages, turns[0])
    assert kept >= pages - 2
    assert same is True
    found = browser.do(
        """await page.getByRole('button', { name: 'Next' }).click();
        const second = await page.locator('.paging p').textContent();
        await page.getByRole('button', { name: /1 broken/ }).click();
        const broken = await page.locator('.streams tbody a').allTextContents();
        await page.getByRole('button', { name: /1 broken/ }).click();
        await page.getByLabel('Search').fill('many:0102');
        return [second, broken, await page.locator('.streams tbody a').allTextContents()]"""
    )
    assert found == [f"{SHOWN + 1} to {2 * SHOWN} of {rows:,}", ["zzz:worst"], ["many:0102"]]
    browser.do("await page.goto('about:blank')")


# Of each text how many letters a line has: as many as it has in all, over the lines that it takes.
LETTERS = """return page.evaluate((selector) => [...document.querySelectorAll(selector)].map((one) => {
    const range = document.createRange();
    range.selectNodeContents(one);
    const lines = new Set([...range.getClientRects()].map(({ top }) => Math.round(top)));
    return one.textContent.length / lines.size;
  }), input)"""


def test_a_telephone_shows_whole_lines(service: LocalRun, browser: Chromium) -> None:
    """A reason has thirty letters a line, and a long id two lines at most, but where it is focused."""
    long_id = "many:" + "a-long-id-" * 24
    cause = json.dumps(
        {"errorMessage": "the profile has a field that nobody knows, and says more than a line about it"}
    )
    listed(service, [long_id], ending={"S": "Broken"}, ending_cause={"S": cause})
    shown(browser, address(service))
    seen_as(browser, "light", TELEPHONE)
    browser.do("await page.getByLabel('Search').fill('a-long-id-')")
    (letters,) = browser.do(LETTERS, ".streams .why")
    assert letters >= 30
    assert violations(browser) == []
    heights = browser.do(
        """const link = page.locator('.streams tbody a');
        const before = await link.evaluate(
          (one) => Math.round(one.getBoundingClientRect().height / parseFloat(getComputedStyle(one).lineHeight)));
        await link.focus();
        return [before, await link.evaluate((one) => one.getClientRects().length)]"""
    )
    assert heights[0] == 2
    assert heights[1] > 4
    browser.do("await page.goto('about:blank')")


def test_a_stream_that_no_profile_describes_has_a_view_of_its_own(service: LocalRun, browser: Chromium) -> None:
    """It names the profile that may be meant, and offers no start."""
    shown(browser, address(service, "dmeo:x"))
    said = browser.do(
        """await page.getByRole('region', { name: 'Unknown stream' }).waitFor();
        const buttons = await page.getByRole('button', { name: /Start/ }).count();
        return [await page.locator('main section p').allTextContents(), buttons]"""
    )
    words = "There is no stream 'dmeo:x': no profile is named 'dmeo'."
    assert said == [[words, "Did you mean 'demo'? GET / lists all profiles."], 0]
    assert violations(browser) == []


def test_dead_letters_are_put_back_as_far_as_they_can_be(service: LocalRun, browser: Chromium, demo: str) -> None:
    """Redrive says before what it cannot do, and after it what was left and why."""
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
        const done = page.getByText(/put back, /);
        await done.waitFor();
        return [can, await done.textContent()]"""
    )
    sqs.purge_queue(QueueUrl=queue)
    assert "It cannot put back an event that was longer than max_frame_bytes" in said[0]
    assert said[1] == "0 events put back, 1 left (1: of its 5000000 bytes the first 1 were kept alone)."


def test_a_stream_is_stopped(service: LocalRun, browser: Chromium, demo: str) -> None:
    """Stop asks first, and nothing follows a no; a yes stops the stream, which the list still has."""
    shown(browser, address(service, demo))
    browser.do(
        """await page.getByRole('button', { name: 'Stop' }).click();
        await page.getByRole('button', { name: 'Cancel' }).click()"""
    )
    assert service.ask("GET", demo)[1]["stop_requested_at"] is None
    browser.do(
        """await page.getByRole('button', { name: 'Stop' }).click();
        await page.getByRole('dialog').getByRole('button', { name: 'Stop' }).click();
        await page.locator('h1 + .status', { hasText: 'Stopped' }).waitFor();
        await page.getByRole('button', { name: 'Start from its cursor' }).waitFor()"""
    )
    assert service.ask("GET", demo)[1]["status"] == "stopped"
    browser.do(
        """await page.getByText('← Streams').click();
        await page.getByLabel('Search').fill(input);
        await page.getByRole('link', { name: input }).waitFor()""",
        demo,
    )
    browser.do("await page.goto('about:blank')")
