"""The list of streams, in a real Chromium with the real service."""

import json
import time
from pathlib import Path

import pytest

from handlers.connection.effects import Progress
from handlers.framing.events import StreamEvent
from handlers.store.ledger_records import connection_item
from tests.console.chromium import Chromium
from tests.console.page import ALL_WAYS, TELEPHONE, WAYS, address, listed, seen_as, shown, store, violations
from tests.local_run import LocalRun

# How many streams the page requests at a time, and how many it shows.
A_PAGE, SHOWN = 100, 50
NOW_MS = time.time_ns() // 1_000_000
# As it is shown, its character that turns the direction of writing has a number.
HOSTILE = "demo:<img src=x onerror=\"document.title='run'\">\u202e\"&'"
VISIBLE = HOSTILE.replace("\u202e", "\\u202e")
BODY = "<script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"
# Of each text how many letters a line has: as many as it has in all, over the lines that it takes.
LETTERS = """return page.evaluate((selector) => [...document.querySelectorAll(selector)].map((one) => {
    const range = document.createRange();
    range.selectNodeContents(one);
    const lines = new Set([...range.getClientRects()].map(({ top }) => Math.round(top)));
    return one.textContent.length / lines.size;
  }), input)"""


@pytest.mark.parametrize("ways", [WAYS[:1], ALL_WAYS], ids=len)
def test_axe_finds_nothing_in_the_list(service: LocalRun, browser: Chromium, ways: tuple[tuple[str, int], ...]) -> None:
    """The list is accessible and fits in light and dark, in a wide window and on a telephone."""
    listed(service, ["demo:listed"])
    shown(browser, address(service))
    browser.do("await page.locator('.streams tbody tr').first().waitFor()")
    for scheme, width in ways:
        seen_as(browser, scheme, {"width": width, "height": 860})
        assert violations(browser) == [], (scheme, width)
    assert browser.do("return page.said") == []


def test_hostile_ids_and_events_are_text(service: LocalRun, browser: Chromium) -> None:
    """The page shows ids and bodies as text, in the list and in a stream's view: none is run or becomes an element."""
    own = store(service)
    # No execution runs it: what an upstream sends meanwhile might push the event out of the newest.
    listed(service, [HOSTILE])
    own.write(HOSTILE, 1, 0, [StreamEvent("<b>key</b>", BODY, "<i>id</i>", "<u>name</u>", None, 1)])
    shown(browser, address(service))
    browser.do("await page.getByRole('link', { name: input, exact: true }).click()", VISIBLE)
    seen = browser.do(
        """await page.getByRole('heading', { level: 1, name: input, exact: true }).waitFor();
        await page.locator('.events summary', { hasText: '<script>' }).click();
        await page.locator('.events pre').waitFor();
        const elements = await page.locator('img, u, i, b, main script').count();
        return [await page.locator('.events pre').textContent(), elements, await page.title(), page.said]""",
        VISIBLE,
    )
    assert seen == [BODY, 0, f"{VISIBLE} · Streamkeeper", [one for one in seen[3] if "Failed to load resource" in one]]


def test_streams_that_share_a_function_are_listed_together(service: LocalRun, browser: Chromium) -> None:
    """The list shows each stream's group, by which it can be searched. A stream's page has a mark for each gap of all.

    A loss that an upstream announced may begin at the same instant as a pause.
    """
    times = {"from_ms": {"N": str(NOW_MS - 90_000)}, "to_ms": {"N": str(NOW_MS - 60_000)}}
    gap = {"SK": {"S": "gap#000000000002"}, "cause": {"S": "dropped"}, "state": {"S": "open"}} | times
    listed(service, ["shared:b"], **gap)
    loss = {"SK": {"S": "gap#000000000002#000001"}, "cause": {"S": "announced_by_upstream"}, "state": {"S": "lost"}}
    listed(service, ["shared:b"], **times, **loss)
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
    assert found[0][:3] == ["ended", "2", "1\u00a0min"]
    assert (found[1], found[2].startswith("0 of 2 streams running, as of ")) == (2, True)
    assert violations(browser) == []


def test_the_empty_first_page_offers_a_button_for_each_demonstration(service: LocalRun, browser: Chromium) -> None:
    """A click starts the stream; a stream whose profile serves many gets a name."""
    browser.do("await page.route(/limit=100$/, (route) => route.fulfill({ json: { streams: [], next: null } }))")
    shown(browser, address(service))
    names, url = browser.do(
        """const buttons = page.locator('.empty button');
        await buttons.first().waitFor();
        const names = await buttons.allTextContents();
        await page.route(/eur-usd/, (route) => route.fulfill({ json: {} }));
        const posted = page.waitForRequest((one) => one.method() === 'POST');
        await page.getByRole('button', { name: 'Start demo-socket:eur-usd' }).click();
        const url = (await posted).url();
        await page.goto('about:blank');
        await page.unrouteAll();
        return [names, url]"""
    )
    profiles = sorted(path.stem for path in Path("env/streams").glob("demo*.toml"))
    assert sorted(names) == [f"Start {name.replace('-socket', '-socket:eur-usd')}" for name in profiles]
    assert url.endswith("/connections/demo-socket%3Aeur-usd")


@pytest.mark.parametrize("many", [105, pytest.param(1_000, marks=pytest.mark.long)])
def test_a_long_list_is_paged_filtered_and_updated_in_place(service: LocalRun, browser: Chromium, many: int) -> None:
    """The worst streams come first, a page at a time. An update keeps rows and focus; chips filter by status."""
    listed(service, ["zzz:worst"], ending={"S": "Broken"})
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


def test_a_stream_with_older_connections_shows_no_gaps_lately(service: LocalRun, browser: Chromium) -> None:
    """The list reads a stream's last four connections. This stream has had nine, so there may be older gaps."""
    ledger = store(service).ledger
    for fence in range(6, 10):
        one = Progress(fence, NOW_MS, NOW_MS, NOW_MS + fence, NOW_MS + fence, "taken_over")
        ledger.save("demo:gaps", connection_item(one, lane="A", execution="e", request_id=f"r{fence}"))
    listed(service, ["demo:gaps"], fence={"N": "9"})
    shown(browser, address(service))
    browser.do("await page.getByLabel('Search').fill('demo:gaps')")
    gaps = browser.do("return page.locator('.streams td[data-name=\"Open gaps\"]').allTextContents()")
    assert gaps == ["none lately"]


def test_a_telephone_and_a_tablet_show_whole_lines(service: LocalRun, browser: Chromium) -> None:
    """A reason gets at least thirty letters a line. A long id gets two lines, and all of them when it has the focus."""
    long_id = "many:" + "a-long-id-" * 24
    cause = json.dumps(
        {"errorMessage": "the profile has a field that nobody knows, and says more than a line about it"}
    )
    listed(service, [long_id], ending={"S": "Broken"}, ending_cause={"S": cause})
    shown(browser, address(service))
    browser.do(
        """await page.getByLabel('Search').fill('a-long-id-');
        await page.locator('.streams tbody a', { hasText: 'a-long-id-' }).waitFor();"""
    )
    for viewport in ({"width": 768, "height": 1024}, TELEPHONE):
        seen_as(browser, "light", viewport)
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


def test_long_names_leave_room_for_the_rest(service: LocalRun, browser: Chromium) -> None:
    """In a narrow window a long id hides neither a part's verdict, nor a function's figures, nor a sink's commands, nor
    the answers to a question.
    """
    shown(browser, address(service))
    browser.do("await page.evaluate(() => { location.hash = '#/runbook'; })")
    browser.do(
        """await page.evaluate(async (id) => {
          const [{ partsPart }, { deliveryPart }, { confirmed, scrolled }] = await Promise.all(
            ['parts', 'delivery', 'dom'].map((name) => import(`./console/${name}.js`)));
          const [parts, delivery] = [partsPart(), deliveryPart('demo')];
          const table = scrolled('Streams', ['Stream', 'Status']);
          parts.show({ parts: [{ stream: id, status: 'running', verdict: 'Connected 3 min 12 s. Nothing lost.' }] });
          const none = { delivered: 0, failed: 0, dead_lettered: 0, waiting: 0 };
          delivery.show({ delivery: [{ ...none, sink: id, waits: 'AWS.SimpleQueueService.NonExistentQueue' }] });
          table.rows.innerHTML = `<tr><th scope="row">${id}</th><td>running</td></tr>`;
          document.getElementById('main').replaceChildren(parts.node, delivery.node, table.node);
          confirmed(`Stop ${id}?`, id, 'Stop');
        }, input)""",
        "demo:" + "p" * 200,
    )
    assert min(browser.do(LETTERS, ".parts li span:last-child")) >= 30
    beyond = "(all) => all.map((one) => one.scrollWidth - one.clientWidth)"
    for width in (1200, 360):
        seen_as(browser, "light", {"width": width, "height": 860})
        assert browser.do(f"return page.locator('.scroll, dialog').evaluateAll({beyond})") == [0, 0, 0]
    heights = browser.do(
        """const table = page.locator('.scroll').last();
        await table.locator('tbody').evaluate((one) => { one.innerHTML = one.innerHTML.repeat(40); });
        const beyond = () => table.evaluate((one) => one.scrollHeight > one.clientHeight);
        const seen = [await beyond()];
        await page.emulateMedia({ media: 'print' });
        seen.push(await beyond());
        await page.emulateMedia({ media: null });
        return seen"""
    )
    assert heights == [True, False]  # paper does not scroll
