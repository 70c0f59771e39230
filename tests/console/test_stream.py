"""A stream's own view, in a real Chromium with the real service."""

import json
import re

import pytest

from handlers.framing.events import StreamEvent
from handlers.store.event_items import StoragePolicy
from tests.console.chromium import Chromium
from tests.console.gate import gate
from tests.console.page import ALL_WAYS, TELEPHONE, WAYS, address, seen_as, shown, store, view, violations
from tests.local import support
from tests.local_run import LocalRun

# The stream that most tests are shown; the first test starts it by the page.
DEMO = "demo:stream"
AWAY = "absent:away"
# Every part of a stream's view is open and has something to show.
READY = """await page.locator('.handover', { hasText: 'Last handover' }).waitFor();
    for (const name of ['More figures', 'State machine']) await page.locator('summary', { hasText: name }).click();
    await page.getByText(/Now in/).waitFor();
    await page.locator('.events li').first().waitFor();
    await page.locator('.figure.cost .value', { hasText: '$' }).waitFor()"""


def test_a_stream_is_started_and_watched(service: LocalRun, browser: Chromium) -> None:
    """Start leads to the stream's view, which shows its handover as it happens."""
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
    """The newest events appear by themselves. An opened event stays, shows what the API has, and a search finds it.

    The page formats its body, and shows it unformatted at the press of a button. Export saves it.
    """
    shown(browser, address(service, demo))
    key, laid_out, body, (later, name, lines), left = browser.do(
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
        await page.evaluate(() => Object.defineProperty(navigator, 'clipboard', { value: undefined }));
        await (await node.$('text=Copy')).click(); // as in a page that came neither by TLS nor from this machine
        await page.getByText('The browser does not allow copying here.').waitFor();
        await page.getByLabel('Search the last events').fill(key);
        await page.getByText(/1 of .* match/).waitFor();
        const later = await page.evaluate(async () => {
          (await import('./console/words.js')).setServerTime(Date.now() + 86_400_000);
          document.getElementById('find').dispatchEvent(new Event('input'));
          return document.querySelector('.events time').textContent;
        });
        const download = page.waitForEvent('download');
        await page.getByRole('button', { name: 'Export' }).click();
        const stream = await (await download).createReadStream();
        const pieces = [];
        for await (const piece of stream) pieces.push(piece);
        const saved = [later, (await download).suggestedFilename(), Buffer.concat(pieces).toString()];
        return [key, laidOut, body, saved, await page.locator('.events li').count()]"""
    )
    stored = next(one for one in service.events(demo, 1000) if one["key"] == key)
    assert (left, stored["data"], " 20" in later.replace("\u00a0", " ")) == (1, body, True)  # the day of yesterday
    assert laid_out == json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    assert (name, [json.loads(line) for line in lines.splitlines()]) == ("demo-stream.ndjson", [stored])


def test_formatted_json_keeps_the_original_numbers(service: LocalRun, browser: Chromium) -> None:
    """A number keeps its digits. A body that is no object or list, or is nested too deeply, is shown unchanged."""
    deep, text = "[" * 30_000 + "]" * 30_000, '{"n": 17952311063000000001, "a": [1.50, {}, [], "x,{}\\""], "e": 1E5}'
    texts = [text, "[]", "12", "a, b", '{"a": 1', deep]
    shown(browser, address(service))
    laid_out = browser.do(
        """return page.evaluate(async (texts) => {
          const { pretty } = await import('./console/pretty.js');
          return texts.map(pretty);
        }, input)""",
        texts,
    )
    first = '{\n  "n": 17952311063000000001,\n  "a": [\n    1.50,\n    {},\n    [],\n    "x,{}\\""\n  ],\n  "e": 1E5\n}'
    assert laid_out == [first, "[]", None, None, None, None]


# The part of the last events, alone on the page, of an API that `answer` plays; nothing comes by itself.
EVENTS = """const { eventsPart } = await import('./console/events.js');
          window.fetch = async (path) => Response.json(answer(path));
          window.EventSource = class { readyState = 2; };
          const { node, load } = eventsPart('demo');
          document.getElementById('main').append(node);
          await load();"""


def test_copy_copies_the_original_body(service: LocalRun, browser: Chromium) -> None:
    """A binary body is copied as Base64. An event whose body lies elsewhere says where, and offers no copy."""
    there, gone = [{"data": ""}, {"data_base64": "AAE="}], [{"left_out": "table"}, {"left_out": "a/b"}]
    bodies = [*there, *gone, {"dead_letter": "long"}]
    events = [{"position": str(at), "key": "k", "received_at": None, **body} for at, body in enumerate(bodies)]
    shown(browser, address(service))
    seen = browser.do(
        f"""return page.evaluate(async (events) => {{
          const answer = () => ({{ events, after: 'x' }});
          {EVENTS}
          const [seen, copies] = [[], []];
          navigator.clipboard.writeText = async (text) => {{ copies.push(text); }};
          for (const one of node.querySelectorAll('.events details')) {{
            one.open = true;
            await new Promise((resolve) => {{ one.addEventListener('toggle', resolve); }});
            const copy = [...one.querySelectorAll('button')].at(-1);
            if (!copy.hidden) copy.click();
            seen.push([one.querySelector('pre').textContent, copy.hidden]);
          }}
          return [...seen.toReversed(), copies];
        }}, input)""",
        events,
    )
    assert seen == [
        ["", False],
        ["(bytes in Base64) AAE=", False],
        ["(no body here: too large for an answer, it is in the table)", True],
        ["(no body here: too large for an answer, it is in the object a/b)", True],
        ["(no body here: in the dead-letter queue: long)", True],
        ["AAE=", ""],
    ]


def test_a_list_of_events_never_hides_a_hole(service: LocalRun, browser: Chromium) -> None:
    """A list that falls too far behind begins anew with the newest events. An export says if events are missing."""
    shown(browser, address(service))
    counts = browser.do(
        f"""return page.evaluate(async () => {{
          let number = 0;
          const answer = (path) => {{
            number += 1;
            const event = {{ position: `p${{number}}`, key: 'k', received_at: null, data: '' }};
            return /latest/.test(path) ? {{ after: 'x' }} : {{ events: [event], next: number < 12 ? 'x' : null }};
          }};
          {EVENTS}
          const first = node.querySelectorAll('.events li').length;
          await load();
          return [first, node.querySelectorAll('.events li').length];
        }})"""
    )
    assert counts == [10, 1]


def test_events_appear_by_themselves_until_the_list_is_paused(service: LocalRun, browser: Chromium, demo: str) -> None:
    """If no key is required, one open answer brings all events. A paused list does not change, and has them later."""
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


def test_the_page_survives_the_loss_of_its_server(service: LocalRun, browser: Chromium, demo: str) -> None:
    """The page says that the server is lost, keeps what it shows, and goes on by itself. It requests nothing elsewhere.

    Its EventSource resumes after the last event, so no event is missing or shown twice.
    """
    with gate(service.port) as server:
        shown(browser, f"http://127.0.0.1:{server.port}/prod/console#/{view(demo)}")
        browser.do(f"{READY}; await page.getByText(/events; live/).waitFor()")
        with server.lost():
            said = browser.do(
                """await page.locator('#link[data-state=lost]').waitFor();
                await page.getByText(/events; waiting for the server/).waitFor();
                return [await page.locator('#link').textContent(), await page.locator('.events li').count() > 0]"""
            )
        assert "The server does not answer. Trying again in" in said[0]
        assert said[1]
        browser.do("await page.locator('#link[data-state=live]').waitFor()")
        assert browser.do("return page.locator('#announce').textContent()") != ""
        seen = browser.do(
            """const bodies = () => page.locator('.events .body').allTextContents();
            const before = (await bodies())[9];
            while ((await bodies()).indexOf(before) < 30) await page.waitForTimeout(100);
            return (await bodies()).reverse()"""
        )
        asked = browser.do("return page.asked")
        browser.do("await page.goto('about:blank')")
    stored = [event["data"] for event in service.events(demo, 1000)]
    assert seen == stored[stored.index(seen[0]) :][: len(seen)]
    assert {url.split("/")[2] for url in asked} == {f"127.0.0.1:{server.port}"}


def test_the_page_explains_why_a_stream_is_not_connected(service: LocalRun, browser: Chromium) -> None:
    """The verdict has the reason. A panel has since when, the next try and what to do, and links to the runbook.

    Each failed attempt is a tick, and the time since the start is a gap. The panel is gone once the stream is stopped.
    """
    service.post(AWAY)
    assert support.until(lambda: service.ask("GET", AWAY)[1].get("last_error"), 30)
    shown(browser, address(service, AWAY))
    seen_as(browser, "dark", TELEPHONE)
    said = browser.do(
        """await page.getByRole('heading', { name: 'Why, and what to do' }).waitFor();
        await page.getByText(/failures in a row since/).waitFor();
        await page.getByText('Never connected, so no event yet').waitFor();
        await page.locator('svg.lanes g > rect.failed').nth(1).waitFor({ state: 'attached' });
        return [await page.locator('.verdict').textContent(), await page.locator('.trouble .lead').textContent(),
          await page.locator('svg.lanes g > rect.gap.open').count()]"""
    )
    assert said[0] == "Not connected yet: nothing listens at the address."
    assert said[1] == "Check the address in its profile, and whether the upstream is up. Runbook: Unconnected"
    assert said[2] == 1
    assert violations(browser) == []
    browser.do(
        """await page.getByRole('link', { name: 'Runbook: Unconnected' }).click();
        await page.getByText(/A stream that should be connected has not been/).waitFor()"""
    )
    assert violations(browser) == []
    browser.do("await page.goBack(); await page.locator('.trouble .lead').waitFor()")
    service.ask("DELETE", AWAY)
    browser.do("await page.locator('.trouble').waitFor({ state: 'hidden' })")


def test_advice_fits_the_cause(service: LocalRun, browser: Chromium) -> None:
    """The panel says in order what to do, and the verdict has an instant instead of a duration."""
    error = {"cause": "refused", "http_status": 401, "failures": 1, "at": "2026-11-24T00:00:00Z"}
    over = {"cause": "over_budget", "failures": 1, "tried_again_at": "2026-11-25T00:00:00Z"}
    once = "the last execution failed: StreamBroken; for another answer start another id, such as name:2"
    rows = [("rejected", None, error), ("broken", once, None), ("reconnecting", None, over), ("running", None, None)]
    away = {"cause": "unheard", "failures": 1, "at": "2026-11-24T00:00:00Z"}
    rows.append(("reconnecting", None, away))
    rows.append(("rejected", None, away | {"cause": "rejected", "detail": "the parameter '/s' cannot be read: X"}))
    rows.append(("rejected", once, away | {"cause": "InvalidRequest"}))
    rows.append(("broken", "its lease cannot be read whole: ended_at", error | {"at": None}))
    gaps = [("running", None, None, f"{day}T00:00:00Z") for day in ("2026-11-24", "9999-01-01")]
    shown(browser, address(service))
    *said, verdict = browser.do(
        """return page.evaluate(async (statuses) => {
          const { whyPart } = await import('./console/why.js');
          const { since, words } = await import('./console/words.js');
          const delivery = [{ sink: 'sqs:a', waits: 'NonExistentQueue' }, { sink: 'sqs:b', waits: 'x' }, { sink: 'c' }];
          const said = statuses.map(([status, reason, last_error, to_at]) => {
            const part = whyPart();
            const more = to_at ? { coverage: { gaps: [{ state: 'open', to_at }] } } : { delivery };
            part.show({ status, reason, last_error, verdict: 'Away', since_at: '2026-11-24T00:00:00Z', ...more });
            return [...part.node.querySelectorAll('p')].map((one) => one.textContent);
          });
          return [...said, since(`Away 2.5 s: ${words('unheard')}. 3 s missing.`, '2026-11-24T00:00:00Z')];
        }, input)""",
        [*rows, *gaps],
    )
    assert said[0][-1].startswith("Renew the credential that its profile names; each try reads it again. Then start ")
    assert said[1][-1].startswith("For another answer start another id, such as name:2. If it breaks again, ")
    assert [one.partition(" ")[0] for one in said[2]] == ["The", "Nothing:"]  # an instant, and no failure
    assert "They stay stored. Create it, or correct its name in the profile. 1 more sink below " in said[3][-1]
    assert len(said[4]) == 1  # the verdict has the instant of the failure
    assert said[5][-1].startswith("Create or correct the secret that its profile names; each try reads it again. Then ")
    assert said[6] == ["Nothing: its answer is below. Runbook: Rejections"]
    assert said[7] == ["Correct the named attributes in the record lease of the control table. Runbook: Unconnected"]
    assert said[8] == ["Each gap is in a table below, with its cause and whether it can be repaired. Runbook: Missing"]
    assert not said[9][-1].startswith("Each")  # a gap that has just begun may close by itself
    assert re.fullmatch(r"Away since [^.]+: its function fell silent\. 3\u00a0s missing\.", verdict)


def test_gaps_that_begin_together_have_a_row_each(service: LocalRun, browser: Chromium) -> None:
    """A loss and a pause may begin at the same instant. Each has its own button once the profile names a repair."""
    shown(browser, address(service))
    cells, marks = browser.do(
        """return page.evaluate(async () => {
          const { lanesPart } = await import('./console/lanes.js');
          const { node, show } = lanesPart();
          const [from_at, to_at] = ['2026-11-24T00:00:00Z', '2026-11-24T00:00:05Z'];
          const gap = { from_at, to_at, length_ms: 5000, cause: 'reset', state: 'open', events: null };
          const gaps = [gap, { ...gap, cause: 'loss', state: 'lost' }];
          const cells = [false, true].flatMap((is_repairable) => {
            show({ stream: 'demo', coverage: {} }, { to_at, connections: [], gaps, is_repairable });
            return [...node.querySelectorAll('tbody tr')].map((row) => row.lastChild.textContent);
          });
          return [cells, node.querySelectorAll('g > rect.gap').length];
        })"""
    )
    assert (cells, marks) == (["its profile has no repair"] * 2 + ["Repair"] * 2, 2)


def test_a_page_with_a_defect_does_not_claim_to_be_live(service: LocalRun, browser: Chromium, demo: str) -> None:
    """What it shows grows old, so it says so; it goes on by itself."""
    shown(browser, address(service, demo))
    said = browser.do(
        """await page.locator('#link[data-state=live]').waitFor();
        await page.route(/timeline$/, (route) => route.fulfill({ json: {} }));
        await page.locator('#link[data-state=lost]').waitFor();
        const said = await page.locator('#link').textContent();
        await page.unroute(/timeline$/);
        await page.locator('#link[data-state=live]').waitFor();
        return said"""
    )
    assert said.startswith("▲ The page failed, please reload it: ")


def test_a_stream_without_an_order_says_so(service: LocalRun, browser: Chromium) -> None:
    """Its events are sorted by key."""
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


@pytest.mark.parametrize("ways", [WAYS[3:], ALL_WAYS], ids=len)
def test_axe_finds_nothing(service: LocalRun, browser: Chromium, ways: tuple[tuple[str, int], ...], demo: str) -> None:
    """This holds for a stream's view with everything open and the question before a stop, in any light and width."""
    shown(browser, address(service, demo))
    browser.do(READY)
    browser.do(
        """await page.getByText('Connections as a table').click();
        await page.getByRole('button', { name: 'Pause' }).click();
        for (const at of [0, 1]) await page.locator('.events summary').nth(at).click();
        await page.getByRole('button', { name: 'Look into the queue' }).click();
        await page.getByText(/of this stream/).waitFor();
        const [one] = await page.locator('.events pre').allTextContents();
        const tens = JSON.parse(one).n.toString().slice(0, -1);
        await page.getByLabel('Search the last events').fill(`"n": ${tens}`);
        await page.getByText(/[0-9] of .* match/).waitFor()"""
    )  # axe looks at each of three hundred events for long, and they look alike
    for scheme, width in ways:
        seen_as(browser, scheme, {"width": width, "height": 860})
        assert violations(browser) == [], (scheme, width)
        beyond = "(all) => all.map((one) => one.scrollWidth - one.clientWidth)"
        hidden = browser.do(f"return page.locator('.cards:visible').evaluateAll({beyond})")
        assert width > 720 or max(hidden) <= 0  # on a telephone a row is a card
        browser.do("await page.getByRole('button', { name: 'Stop' }).click(); await page.getByRole('dialog').waitFor()")
        assert violations(browser, "dialog") == [], (scheme, width)
        browser.do("await page.keyboard.press('Escape'); await page.getByRole('dialog').waitFor({state: 'hidden'})")
    assert browser.do("return page.said") == []


def test_a_stream_without_a_profile_has_a_view_of_its_own(service: LocalRun, browser: Chromium) -> None:
    """The view links to the stream of a similar profile, and offers no start."""
    shown(browser, address(service, "dmeo:x"))
    said = browser.do(
        """await page.getByRole('region', { name: 'Unknown stream' }).waitFor();
        const buttons = await page.getByRole('button', { name: /Start/ }).count();
        return [await page.locator('main section p').allTextContents(), buttons]"""
    )
    words = "There is no stream 'dmeo:x': no profile is named 'dmeo'."
    assert said == [[words, "Did you mean demo:x?"], 0]
    assert browser.do("return page.locator('main section a').getAttribute('href')") == "#/streams/demo%3Ax"
    assert violations(browser) == []
    for stream_id in ("..", "demo:.."):  # a browser takes dots for another path
        shown(browser, address(service, stream_id))
        browser.do("await page.getByText(/^The stream id '.*' is malformed: .*\\.$/).waitFor()")


def test_the_page_shows_nothing_of_a_stream_whose_records_are_gone(
    service: LocalRun, browser: Chromium, demo: str
) -> None:
    """The run's folder was removed, or the table restored. The stream may be started, and has no status."""
    shown(browser, address(service, demo))
    browser.do("await page.locator('h1 + .status', { hasText: 'Running' }).waitFor()")
    never = f"http://127.0.0.1:{service.port}/connections/demo%3Anever"
    seen = browser.do(
        """const answer = await context.request.get(input);
        await page.route(/connections.demo%3Astream/, (route) => route.fulfill({ response: answer }));
        await page.getByRole('button', { name: 'Start', exact: true }).waitFor();
        await page.getByText(/was never started/).waitFor();
        const badge = page.locator('h1 + .status');
        const trouble = page.locator('.trouble');
        const parts = [badge, trouble, page.getByText('Stop')];
        const seen = await Promise.all(parts.map((one) => one.isVisible()));
        await page.unrouteAll();
        return [answer.status(), ...seen]""",
        never,
    )
    assert seen == [404, False, False, False]
