"""The page in a real Chromium, served by the real service: what a person sees and does there.

`STREAMKEEPER_SCREENSHOTS=1` has the pictures of docs/console.md made anew.
"""

import os
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from handlers.framing.events import StreamEvent
from handlers.store.connection_store import Store
from handlers.store.event_items import StoragePolicy
from local import stages
from tests.console.chromium import Chromium, chromium
from tests.console.key_proxy import key_proxy
from tests.harness import STAGE, Service
from tests.local import support
from tests.local.metrics.receiver import receiver

# How many streams the page asks for at a time.
A_PAGE = 100
HOSTILE = "demo:<img src=x onerror=\"document.title='run'\">\"&'"
BODY = "<script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"
TELEPHONE = {"width": 390, "height": 860}
PICTURES = support.PROJECT / "docs"
# Every part of a stream's view has something to show.
READY = """await page.locator('.handover', { hasText: 'Last handover' }).waitFor();
    await page.getByText(/Now in/).waitFor();
    await page.locator('.events li').first().waitFor();
    await page.locator('.figure.cost .value', { hasText: '$' }).waitFor()"""
# What the service has sent to OpenTelemetry's collector.
SENT: dict[Service, list[Any]] = {}
# The four ways in which a view is looked at, and those two that between them are light and dark, wide and narrow.
WAYS = tuple((scheme, width) for scheme in ("light", "dark") for width in (1200, 390))
TWO_WAYS = (WAYS[0], WAYS[3])
SEEN = pytest.mark.parametrize("ways", [TWO_WAYS, pytest.param(WAYS, marks=pytest.mark.long)], ids=len)
SHOTS = bool(os.environ.get("STREAMKEEPER_SCREENSHOTS"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    """One browser for all tests of this file."""
    with chromium() as one:
        yield one


@pytest.fixture(scope="module")
def service(browser: Chromium, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for all tests of this file, with the stream `demo` running."""
    assert browser  # without one nothing is started
    with receiver() as (collector, received):
        folder = tmp_path_factory.mktemp("console")
        one = Service(
            folder,
            OTEL_EXPORTER_OTLP_ENDPOINT=collector,
            OTEL_METRIC_EXPORT_INTERVAL="5000",
            UPSTREAM_COUCHDB="http://127.0.0.1:1",  # nothing listens there
        )
        one.start()
        one.post("demo")
        SENT[one] = received
        try:
            yield one
            one.check_permissions()
        finally:
            one.end()


def address(service: Service, view: str = "") -> str:
    """Where the page shows a view."""
    return f"http://127.0.0.1:{service.port}/console#/{view}"


def shown(browser: Chromium, url: str, **options: Any) -> None:
    """Opens the page in a context of its own, and waits until it is live."""
    browser.do("await (await open(input.options)).goto(input.url)", {"url": url, "options": options})
    browser.do("await page.locator('#link[data-state=live]').waitFor()")


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


def picture(browser: Chromium, name: str, height: int = 860) -> None:
    """Makes a picture for docs/ where pictures are asked for."""
    if SHOTS:
        path = str(PICTURES / f"console-{name}.png")
        browser.do(
            "await page.setViewportSize({ width: page.viewportSize().width, height: input.height });"
            "await page.waitForTimeout(300); await page.screenshot({ path: input.path })",
            {"path": path, "height": height},
        )
        assert Path(path).stat().st_size < 200_000


def store(service: Service) -> Store:
    """The tables of the service, to write what no demonstration upstream sends."""
    endpoint, names = f"http://127.0.0.1:{service.port + 1}", stages.names(STAGE)
    return Store(
        support.client("dynamodb", endpoint),
        lambda: support.client("sqs", endpoint),
        events_table=names["events_table"],
        control_table=names["control_table"],
        dead_letter_queue_url="http://127.0.0.1:1/",
        events_bucket="",
        s3=lambda: None,
    )


def listed(service: Service, ids: Sequence[str]) -> None:
    """Streams that were started once and that no execution runs."""
    client = support.client("dynamodb", f"http://127.0.0.1:{service.port + 1}")
    table = stages.names(STAGE)["control_table"]
    lease = {"SK": {"S": "lease"}, "generation": {"N": "1"}, "fence": {"N": "0"}}
    puts = [{"PutRequest": {"Item": {"PK": {"S": each}, **lease}}} for each in ids]
    for first in range(0, len(puts), 25):
        assert not client.batch_write_item(RequestItems={table: puts[first : first + 25]})["UnprocessedItems"]


def test_a_stream_is_started_watched_and_stopped(service: Service, browser: Chromium) -> None:
    """Start leads to the stream; its handover is seen as it happens; Stop asks first, and nothing follows a no."""
    shown(browser, address(service))
    browser.do(
        """await page.getByLabel('Start a stream').fill('demo:watched');
        await page.getByRole('button', { name: 'Start' }).click();
        await page.getByRole('heading', { level: 1, name: 'demo:watched' }).waitFor();
        await page.locator('h1 + .status', { hasText: 'Running' }).waitFor();
        const handover = /lane A took over from lane B; both were connected for/;
        await page.locator('.handover', { hasText: handover }).waitFor()"""
    )
    _, before = service.ask("GET", "demo:watched")
    assert before["status"] == "running"
    seen = browser.do(
        """const marks = page.locator('svg.lanes rect[class]');
        const kinds = await marks.evaluateAll((all) => all.map((one) => one.getAttribute('class')));
        await page.getByText(/Now in .*Connect/).waitFor();
        const lit = await page.locator('.graph .lit:not(:has(.group)) > text').allTextContents();
        await page.getByRole('button', { name: 'Stop' }).click();
        await page.getByRole('button', { name: 'Cancel' }).click();
        return [[...new Set(kinds)].sort(), lit]"""
    )
    assert {"open", "both", "wait"} <= set(seen[0])
    assert {name[:-2] for name in seen[1]} <= {"Connect", "Wait"}
    assert service.ask("GET", "demo:watched")[1]["stop_requested_at"] is None
    browser.do(
        """await page.getByRole('button', { name: 'Stop' }).click();
        await page.getByRole('dialog').getByRole('button', { name: 'Stop' }).click();
        await page.locator('h1 + .status', { hasText: 'Stopped' }).waitFor();
        await page.getByRole('button', { name: 'Start' }).waitFor()"""
    )
    assert service.ask("GET", "demo:watched")[1]["status"] == "stopped"
    browser.do(
        "await page.getByText('← Streams').click(); await page.getByRole('link', { name: 'demo:watched' }).waitFor()"
    )
    picture(browser, "streams", 420)


def test_an_event_is_read_and_found(service: Service, browser: Chromium) -> None:
    """The newest events come by themselves; one that is opened stays, and is what the API has; a search finds it."""
    shown(browser, address(service, "streams/demo"))
    key, body, left = browser.do(
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
        const body = await node.evaluate((one) => one.open
          && document.activeElement === one.querySelector('summary') && one.querySelector('pre').textContent);
        await page.getByLabel('Search the last events').fill(key);
        await page.getByText(/1 of .* match/).waitFor();
        return [key, body, await page.locator('.events li').count()]"""
    )
    assert left == 1
    assert next(one["data"] for one in service.events("demo", 1000) if one["key"] == key) == body


def test_the_metrics_are_told_to_prometheus_and_opentelemetry(service: Service) -> None:
    """The run serves what the API says was stored, and sends the same names to the collector that is set."""
    with urllib.request.urlopen(f"http://127.0.0.1:{service.port}/metrics", timeout=120) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        families = {one.name: one.samples for one in text_string_to_metric_families(answer.read().decode())}
    (stored,) = (one for one in families["streamkeeper_events_stored"] if one.labels == {"stream": "demo"})
    assert 0 < stored.value <= service.ask("GET", "demo")[1]["counts"]["stored"]
    assert support.until(lambda: SENT[service], 10)
    path, _, body = SENT[service][-1]
    names = {one["name"] for one in body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]}
    assert path == "/v1/metrics"
    assert "streamkeeper.events.stored" in names


def test_a_server_that_is_lost_and_comes_back(service: Service, browser: Chromium) -> None:
    """The page says so, keeps what it shows, and goes on by itself; nothing is asked of anybody else.

    An EventSource of the browser's own goes on behind its last event: none is missing and none comes twice.
    """
    shown(browser, address(service, "streams/demo"))
    browser.do(READY)
    assert browser.do(
        """return page.evaluate(() => new Promise((done) => {
          window.seen = [];
          window.source = new EventSource('connections/demo/events');
          window.source.onmessage = ({ data, lastEventId }) => {
            window.seen.push(lastEventId);
            if (JSON.parse(data).position !== lastEventId) window.seen.push('not its own position');
            if (window.seen.length === 10) done(true);
          };
        }))"""
    )
    service.end()
    try:
        said = browser.do(
            """await page.locator('#link[data-state=lost]').waitFor();
            return [await page.locator('#link').textContent(), await page.locator('.events li').count() > 0]"""
        )
        picture(browser, "lost", 480)
    finally:
        service.start()
    assert "The server does not answer. Asked again in" in said[0]
    assert said[1]
    browser.do("await page.locator('#link[data-state=live]').waitFor()")
    assert browser.do("return page.locator('#announce').textContent()") != ""
    seen = browser.do(
        """const before = await page.evaluate(() => window.seen.length);
        await page.waitForFunction((count) => window.seen.length > count + 10, before);
        return page.evaluate(() => { window.source.close(); return window.seen; })"""
    )
    stored = [event["position"] for event in service.events("demo", 1000)]
    # Written before one that was there already: an open answer brings it later, under the last id.
    assert len(seen) == len(set(seen))
    assert seen == stored[: len(seen)]
    asked = browser.do("return page.asked")
    assert {url.split("/")[2] for url in asked} == {f"127.0.0.1:{service.port}"}


def test_events_come_by_themselves_until_the_list_is_paused(service: Service, browser: Chromium) -> None:
    """Without a key one open answer brings them; paused, the list stays as it is, and what came is there after."""
    shown(browser, address(service, "streams/demo"))
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


def test_why_a_stream_is_not_connected(service: Service, browser: Chromium) -> None:
    """A panel has the server's words, since when, and when it is tried again; it is gone when the stream is stopped."""
    service.post("couchdb:away")
    assert support.until(lambda: service.ask("GET", "couchdb:away")[1]["last_error"], 30)
    shown(browser, address(service, "streams/couchdb%3Aaway"), colorScheme="dark", viewport=TELEPHONE)
    said = browser.do(
        """await page.getByRole('heading', { name: 'Why it is not connected' }).waitFor();
        return page.locator('.trouble p').allTextContents()"""
    )
    assert said[0].startswith("refused: nothing listens at the address")
    assert said[1].startswith("Failed at ")
    assert "Tried again" in said[0] + said[1] or "tried again" in said[0]
    assert browser.do("return page.evaluate(() => document.documentElement.scrollWidth)") <= TELEPHONE["width"]
    assert violations(browser) == []
    service.ask("DELETE", "couchdb:away")
    browser.do("await page.locator('.trouble').waitFor({ state: 'hidden' })")


def test_streams_of_a_log_and_without_an_order(service: Service, browser: Chromium) -> None:
    """Events of a log come as those of items do; where there is no order the list says so, and they stand by key."""
    service.post("demo-log")
    own = store(service)
    own.claim("demo:unordered", execution="", holder="B/request-1", order="none")
    events = [StreamEvent(key, f"body of {key}", None, None, None, 1) for key in ("c", "a", "b")]
    own.write("demo:unordered", 1, 0, events, StoragePolicy(order="none"))
    shown(browser, address(service, "streams/demo-log"))
    # The first ones, and then others: they follow.
    browser.do(
        """await page.locator('.events li').first().waitFor();
        const first = await page.locator('.events .body').first().textContent();
        await page.waitForFunction((text) => document.querySelector('.events .body').textContent !== text, first)"""
    )
    service.ask("DELETE", "demo-log")
    shown(browser, address(service, "streams/demo%3Aunordered"))
    seen = browser.do(
        """await page.getByText('3 events, by key: this stream keeps no order of arrival').waitFor();
        return page.locator('.events .body').allTextContents()"""
    )
    assert seen == ["body of a", "body of b", "body of c"]


@SEEN
def test_axe_finds_nothing_in_the_list(service: Service, browser: Chromium, ways: tuple[tuple[str, int], ...]) -> None:
    """Light and dark, wide and on a telephone, where it fits."""
    shown(browser, address(service))
    browser.do("await page.locator('.streams tbody tr').first().waitFor()")
    for scheme, width in ways:
        seen_as(browser, scheme, {"width": width, "height": 860})
        assert violations(browser) == [], (scheme, width)
    assert browser.do("return page.said") == []


def test_hostile_ids_and_events_are_text(service: Service, browser: Chromium) -> None:
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


@SEEN
def test_axe_finds_nothing(service: Service, browser: Chromium, ways: tuple[tuple[str, int], ...]) -> None:
    """In a stream's view with everything open, in the question before a stop, light and dark, wide and narrow."""
    shown(browser, address(service, "streams/demo"))
    browser.do(READY)
    for name, scheme, width in (
        ("stream-light", "light", 1200),
        ("stream-dark", "dark", 1200),
        ("phone", "light", 390),
        ("", "dark", 390),
    ):
        seen_as(browser, scheme, {"width": width, "height": 860})
        if name:
            picture(browser, name, 1000)
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


def test_a_key_is_asked_for_and_kept_by_the_tab_alone(service: Service, browser: Chromium) -> None:
    """Where the API asks for one; a wrong one is refused in words; only the session storage has the right one."""
    with key_proxy(service.port, "right") as port:
        browser.do("await (await open({})).goto(input)", f"http://127.0.0.1:{port}/console")
        browser.do("await page.getByLabel('API key').waitFor()")
        assert violations(browser) == []
        browser.do("await page.setViewportSize(input); await page.emulateMedia({ colorScheme: 'dark' })", TELEPHONE)
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
        assert kept == [{"streamkeeper-key": "right"}, {}, "", f"http://127.0.0.1:{port}/console", 0]
        browser.do("await page.getByRole('button', { name: 'Forget the key' }).click()")
        browser.do("await page.getByLabel('API key').waitFor()")
        assert browser.do("return page.evaluate(() => sessionStorage.length)") == 0


def test_all_of_it_can_be_done_by_keyboard(service: Service, browser: Chromium) -> None:
    """Tab reaches the search, Enter starts a stream, and Escape answers the question with no."""
    shown(browser, address(service, "streams/demo"))
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
    assert service.ask("GET", "demo")[1]["stop_requested_at"] is None


def test_streams_that_share_a_function_stand_together(service: Service, browser: Chromium) -> None:
    """Below a row of their own in the list; of one its page has the gaps of all, with a mark for each."""
    client = support.client("dynamodb", f"http://127.0.0.1:{service.port + 1}")
    table, now_ms = stages.names(STAGE)["control_table"], time.time_ns() // 1_000_000
    for name in ("shared:a", "shared:b"):
        lease = {"SK": {"S": "lease"}, "generation": {"N": "1"}, "fence": {"N": "2"}, "group": {"S": "#7"}}
        client.put_item(TableName=table, Item={"PK": {"S": name}, **lease})
    times = {"from_ms": {"N": str(now_ms - 90_000)}, "to_ms": {"N": str(now_ms - 60_000)}}
    gap = {"SK": {"S": "gap#000000000002"}, "cause": {"S": "dropped"}, "closed_by_cursor": {"BOOL": False}} | times
    client.put_item(TableName=table, Item={"PK": {"S": "shared:b"}, **gap})
    shown(browser, address(service))
    rows = browser.do(
        """await page.locator('.streams tr.group').waitFor();
        return page.locator('.streams tbody tr').allTextContents()"""
    )
    at = rows.index("Group #7: 2 streams in one function, 0 running")
    assert [row.startswith(name) for row, name in zip(rows[at + 1 :], ("shared:a", "shared:b"), strict=True)] == [
        True
    ] * 2
    assert violations(browser) == []
    shown(browser, address(service, "streams/shared%3Aa"))
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


@pytest.mark.parametrize("many", [150, pytest.param(1_000, marks=pytest.mark.long)])
def test_many_streams_are_listed_found_and_left_in_place(service: Service, browser: Chromium, many: int) -> None:
    """Each has a row; a search leaves those that match; an update makes no row anew and keeps the focus."""
    listed(service, [f"many:{number:04d}" for number in range(many)])
    shown(browser, address(service))
    rows = browser.do(
        """const shown = (count) => document.querySelectorAll('.streams tbody tr').length >= count;
        await page.waitForFunction(shown, input);
        return page.locator('.streams tbody tr').count()""",
        many,
    )
    pages = -(-rows // A_PAGE)
    browser.do("await page.locator('#link[data-state=live]').waitFor()")
    turns, kept, same = browser.do(
        """const row = page.locator('.streams tbody tr', { hasText: 'many:0120' });
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
        """await page.getByLabel('Search').fill('many:0123');
        return page.locator('.streams tbody tr').allTextContents()"""
    )
    assert [one.startswith("many:0123") for one in found] == [True]
    browser.do("await page.getByLabel('Search').fill('demo')")
    assert violations(browser) == []
    browser.do("await page.goto('about:blank')")
