"""Helpers for tests of the page: they open it, judge it, and put records into its tables."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import pytest

from handlers.store.connection_store import Store
from local import stages
from tests.console.chromium import Chromium
from tests.harness import STAGE, Service
from tests.local_run import LocalRun

TELEPHONE = {"width": 390, "height": 860}
# The streams that stand in the table alone.
LISTED: list[str] = []
# Each scheme and width; the default run has the list light and wide, a stream dark and narrow.
WAYS = tuple((scheme, width) for scheme in ("light", "dark") for width in (1200, 390))
ALL_WAYS = pytest.param(WAYS, marks=pytest.mark.long)


def address(service: LocalRun, stream_id: str = "") -> str:
    """Returns the address at which the page shows the list, or a stream."""
    return f"http://127.0.0.1:{service.port}/console#/{view(stream_id)}"


def view(stream_id: str) -> str:
    """Returns the fragment of the page's address for a stream, or for the list."""
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
    """Switches the open page to light or dark and to this size, and checks that it fits."""
    browser.do(
        "await page.setViewportSize(input[0]); await page.emulateMedia({ colorScheme: input[1] })", [viewport, scheme]
    )
    browser.do(
        "await page.waitForFunction((width) => document.documentElement.scrollWidth <= width, input)", viewport["width"]
    )


def violations(browser: Chromium, part: str = "html") -> Any:
    """Returns what axe finds in a part of the page. It runs from outside: the page's policy allows no other script."""
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


def store(service: Service) -> Store:
    """Returns the service's tables, for records that no demonstration upstream produces."""
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


def listed(service: Service, ids: Sequence[str], **more: Any) -> None:
    """Writes records of streams that were started once and have no execution any more."""
    LISTED.extend(ids)
    lease = {"SK": {"S": "lease"}, "generation": {"N": "1"}, "fence": {"N": "0"}} | more
    puts = [{"PutRequest": {"Item": {"PK": {"S": each}, **lease}}} for each in ids]
    requests = {stages.names(STAGE)["control_table"]: puts}
    for first in range(0, len(puts), 25):
        part = {name: items[first : first + 25] for name, items in requests.items()}
        assert not service.aws("dynamodb").batch_write_item(RequestItems=part)["UnprocessedItems"]


def unlisted(service: Service) -> None:
    """Removes the records that `listed` has written."""
    table, client = stages.names(STAGE)["control_table"], service.aws("dynamodb")
    for stream_id in LISTED:
        client.delete_item(TableName=table, Key={"PK": {"S": stream_id}, "SK": {"S": "lease"}})
