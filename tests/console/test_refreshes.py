"""A refresh of the page, or a late answer, keeps what the viewer is doing; in a real Chromium."""

from tests.console.chromium import Chromium
from tests.console.page import address, listed, shown
from tests.local_run import LocalRun


def test_a_late_answer_does_not_change_another_view(service: LocalRun, browser: Chromium) -> None:
    """The viewer has left the view of an unknown stream, or of a group whose streams are read one at a time."""
    listed(service, ["late:a", "late:b"], group={"S": "#late"})
    shown(browser, address(service))
    seen = browser.do(
        """const held = [];
        const release = async () => { for (const one of held.splice(0)) await one.continue(); };
        const at = (hash) => page.evaluate((to) => { location.hash = to; }, hash);
        const isHeld = async (count) => { while (held.length < count) await page.waitForTimeout(20); };
        const list = page.locator('.streams tbody a').first();
        await page.route(/dmeo%3Alate|\\/gaps/, (route) => { held.push(route); });
        await at('#/streams/dmeo%3Alate');
        await isHeld(2);
        await at('#/');
        await list.waitFor();
        await release();
        const answered = () => page.waitForResponse((answer) => answer.url().includes('connections?'));
        await answered();
        const isList = await list.isVisible();
        await at('#/streams/late%3Aa');
        await page.locator('summary', { hasText: 'group #late' }).click();
        await isHeld(1);
        await page.getByText('← Streams').click();
        await release();
        await answered();
        await page.unrouteAll();
        return [isList, page.asked.filter((url) => url.includes('/gaps')).length]"""
    )
    assert seen == [True, 1]


def test_a_refresh_keeps_the_focus(service: LocalRun, browser: Chromium) -> None:
    """A row keeps it though other rows move, and so do the links beside a reason and a number that change."""
    shown(browser, address(service))
    seen = browser.do(
        """return page.evaluate(async () => {
          const [{ element, keyed }, { deadLettersPart }, { whyPart }] = await Promise.all(
            ['dom', 'delivery', 'why'].map((name) => import(`./console/${name}.js`)));
          const main = document.getElementById('main');
          const list = element('div');
          const draw = (items) => keyed(list, [...items], String, (one) => element('button', {}, one), () => {});
          draw('abcd');
          main.append(list);
          const row = list.children[2];
          row.focus();
          const seen = ['bcd', 'xbcd', 'bcdx', 'cbdx'].map((items) => {
            draw(items);
            return [list.textContent, document.activeElement === row];
          });
          const letters = deadLettersPart('demo');
          const why = whyPart();
          const says = (failures) => why.show(
            { status: 'reconnecting', verdict: 'Away', last_error: { cause: 'refused', failures } });
          for (const [part, show] of [[letters, letters.count], [why, says]]) {
            show(2);
            main.append(part.node);
            const link = part.node.querySelector('a');
            link.focus();
            show(3);
            seen.push([/3 (events|failures)/.test(part.node.textContent), document.activeElement === link]);
          }
          return seen;
        })"""
    )
    assert seen == [[items, True] for items in ("bcd", "xbcd", "bcdx", "cbdx")] + [[True, True]] * 2


def test_ages_count_by_the_servers_clock(service: LocalRun, browser: Chromium) -> None:
    """The viewer's clock may be an hour off. The ticks of a timeline across midnight show times of day only.

    Without an answer the timeline goes on for 10 s and then stops: nobody knows whether the connection is open.
    """
    shown(browser, address(service))
    ages, ticks, lengths = browser.do(
        """await page.route(/limit=1$/, (route) => route.fulfill({
          json: {}, headers: { date: new Date(Date.now() + 3_600_000).toUTCString() } }));
        const seen = await page.evaluate(async () => {
          const [{ ask }, { age, setServerTime }, { lanesPart }] = await Promise.all(
            ['api', 'words', 'lanes'].map((name) => import(`./console/${name}.js`)));
          const at = new Date(Date.now() + 3_530_000).toISOString();
          const ages = [age(at)];
          await ask('connections?limit=1');
          ages.push(age(at));
          const { node, show, tick } = lanesPart();
          const to_at = '2026-11-24T00:00:30Z';
          const open = { lane: 'A', fence: 1, opened_at: '2026-11-23T23:59:30Z', until_at: to_at, is_open: true };
          show({ stream: 'demo', coverage: {} }, { to_at, connections: [open], gaps: [] });
          const ticks = [...node.querySelectorAll('.ticks text')].map((one) => one.textContent);
          const lengths = [0, 10_000, 3_600_000].map((ms) => {
            setServerTime(Date.parse(to_at) + ms);
            tick();
            return node.querySelector('g rect.open title').textContent.split(', ').at(-1);
          });
          return [ages, ticks, lengths];
        });
        await page.unrouteAll();
        return seen"""
    )
    assert ages == ["0\u00a0s", "1\u00a0min"]
    assert {len(tick) for tick in ticks} == {len("23:59:45")}
    assert lengths == ["1\u00a0min", "1\u00a0min 10\u00a0s", "1\u00a0min 10\u00a0s"]


def test_a_slow_server_is_asked_for_one_page_of_a_long_list_at_a_time(service: LocalRun, browser: Chromium) -> None:
    """Each of fifty pages takes 3 s. The page is live after the first; then it requests another page every 15 s."""
    shown(browser, address(service))
    live, first, later = browser.do(
        """await page.evaluate(() => { location.hash = '#/runbook'; });
        await page.locator('.sections a').first().waitFor(); // its timer is none of those below
        return page.evaluate(async () => {
          const { streamsView } = await import('./console/streams.js');
          const inATurn = setTimeout;
          const [asked, timers, live] = [[], [], []];
          let now = 0;
          performance.now = () => now;
          window.setTimeout = (run, ms) => timers.push([run, ms]);
          window.clearTimeout = (timer) => { delete timers[timer - 1]; };
          window.fetch = async (path) => {
            if (path !== './') {
              asked.push([now / 1000, Number(/after=(.*)/.exec(path)?.[1] ?? 0)]);
              now += 3000;
            }
            const [, at] = asked.at(-1) ?? [];
            const body = JSON.stringify({ streams: [], next: at < 49 ? String(at + 1) : null });
            return { ok: true, headers: { get: () => null }, text: async () => body };
          };
          const server = { answered: () => live.push(asked.length), failed: (failure) => { throw failure; } };
          const view = streamsView(document.getElementById('main'), server);
          for (let turn = 0; turn < 4; turn += 1) {
            const [run, ms] = timers.splice(0).filter(Boolean).at(-1);
            now += ms;
            run();
            await new Promise((resolve) => { inATurn(resolve); });
          }
          view.stop();
          return [live[0], asked.splice(0, 50).map(([, at]) => at), asked];
        })"""
    )
    assert (live, first) == (1, list(range(50)))
    assert later == [[150 + 15 + turn * (3 + 9), turn] for turn in range(3)]
