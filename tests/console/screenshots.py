"""Makes the pictures of the pages anew, and README's recording of a handover: `make screenshots`.

Of a run of its own in which all is well: four demonstration streams, each after a handover, and nothing else.
"""

import tempfile
import time
from pathlib import Path

from tests.console import recording
from tests.console.chromium import Chromium, chromium
from tests.console.gate import gate
from tests.console.page import shown
from tests.harness import Service
from tests.local import support

DOCS = support.PROJECT / "docs"
STREAMS = ("demo", "demo:eu-west", "demo-log", "demo-ndjson")
# Name, light or dark, width, height, and what is shown.
VIEWS = (
    ("console-streams", "light", 1200, 440, "#/"),
    ("console-stream-light", "light", 1200, 980, "#/streams/demo"),
    ("console-stream-dark", "dark", 1200, 980, "#/streams/demo"),
    ("console-phone", "light", 390, 1000, "#/streams/demo"),
)
# Two minutes and three handovers: the line of time is full.
STARTED_S = 130
MOST_BYTES, MOST_RECORDED_BYTES = 200_000, 1_000_000


def taken(browser: Chromium, name: str, scheme: str, width: int, height: int) -> None:
    """Takes a picture of the open page."""
    path = DOCS / f"{name}.png"
    browser.do(
        """await page.emulateMedia({ colorScheme: input.scheme, reducedMotion: 'reduce' });
        await page.setViewportSize({ width: input.width, height: input.height });
        await page.waitForTimeout(1000);
        await page.screenshot({ path: input.path })""",
        {"scheme": scheme, "width": width, "height": height, "path": str(path)},
    )
    assert path.stat().st_size < MOST_BYTES, path
    print(path.relative_to(support.PROJECT))


def recorded(browser: Chromium, address: str) -> None:
    """Records a handover of a stream."""
    path = DOCS / "handover.png"
    shown(browser, address)
    browser.do("await page.setViewportSize({ width: 1000, height: 640 })")
    path.write_bytes(recording.handover(browser))
    verdict = browser.do("return page.locator('.verdict').textContent()")
    assert verdict.endswith(" Nothing lost."), f"the run is not healthy: {verdict}"
    assert path.stat().st_size < MOST_RECORDED_BYTES, path
    print(path.relative_to(support.PROJECT))


def main() -> None:
    """Starts an ordinary run whose lanes last half a minute, waits, and makes the pictures."""
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        service = Service(Path(folder), STREAMKEEPER_STAGE="local")
        service.start()
        try:
            for stream_id in STREAMS:
                service.post(stream_id)
            time.sleep(STARTED_S)
            pictures(service.port, browser)
        finally:
            service.end()


def pictures(port: int, browser: Chromium) -> None:
    """Makes the pictures of all VIEWS, and of the page after its server is lost."""
    with gate(port) as server:
        page = f"http://127.0.0.1:{server.port}/prod/console"
        for name, scheme, width, height, view in VIEWS:
            shown(browser, page + view)
            browser.do("await page.locator('.streams tbody tr, .events li').first().waitFor()")
            taken(browser, name, scheme, width, height)
        recorded(browser, f"{page}#/streams/demo")
        with server.lost():
            browser.do("await page.locator('#link[data-state=lost]').waitFor()")
            taken(browser, "console-lost", "light", 1200, 300)


if __name__ == "__main__":
    main()
