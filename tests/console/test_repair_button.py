"""The button beside a gap, in a real Chromium: it starts the real repair function if the profile has a repair."""

import json
import urllib.request

from handlers.aws.lambda_environment import now_ms
from handlers.connection.effects import Progress, RecordLoss
from handlers.framing.events import StreamEvent
from handlers.store.event_items import StoragePolicy
from handlers.store.ledger_records import connection_item
from local.upstreams.behaviours import DEMOS, TRADES, TRADES_LATE_MS
from tests.console.chromium import Chromium
from tests.console.page import address, listed, shown, store
from tests.local_run import LocalRun

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
