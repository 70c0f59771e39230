"""`streamkeeper console`: the page of an API that requires signatures, in a real Chromium."""

import contextlib
import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.console.chromium import Chromium
from tests.harness import Service, running
from tests.local.support import environment
from tests.projects import with_settings
from tests.real.test_readme import copied

SECRET = "local"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
# Starts a stream, waits until its events follow, and stops it.
STORY = """await page.locator('#link[data-state=live]').waitFor();
    await page.getByLabel('Start a stream').fill('demo:a/b c');
    await page.getByRole('button', { name: 'Start', exact: true }).click();
    await page.locator('h1 + .status', { hasText: 'Running' }).waitFor();
    await page.getByText(/events; live/).waitFor();
    const first = await page.locator('.events .body').first().textContent();
    await page.waitForFunction((text) => document.querySelector('.events .body').textContent !== text, first);
    await page.getByRole('heading', { name: 'State machine' }).click();
    await page.getByText(/Now in/).waitFor();
    await page.getByRole('button', { name: 'Stop' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Stop' }).click();
    await page.locator('h1 + .status', { hasText: 'Stopped' }).waitFor();
    const kept = await page.evaluate(() => [{ ...sessionStorage }, { ...localStorage }, document.cookie]);
    const { asked, said } = page;
    await page.goto('about:blank');
    return { kept, asked, said }"""


def command(url: str) -> list[str]:
    """Returns the command that serves the page of the API at this address."""
    return [sys.executable, "-m", "local.cli", "console", "--sign", "--url", url]


@contextlib.contextmanager
def console(url: str, project: Path) -> Iterator[str]:
    """Yields the address that the command prints; ends the command by Ctrl-C."""
    known = environment(**CREDENTIALS)
    with subprocess.Popen(
        command(url), cwd=project, env=known, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGINT)
            status, said = process.wait(60), process.stderr.read()
    assert status == 130
    assert said == f"The page reads {url} with your credentials; Ctrl-C ends it.\n"


def status_of(url: str) -> int:
    """Returns the status with which the address answers another client."""
    try:
        with urllib.request.urlopen(url, timeout=120) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code


def used(browser: Chromium, service: Service, project: Path) -> None:
    """Starts, shows and stops a stream, and checks that the browser has no credential."""
    with console(f"http://127.0.0.1:{service.port}", project) as address:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[A-Za-z0-9_-]{22}/console", address)
        origin, _, rest = address.removeprefix("http://").partition("/")
        browser.do("await (await open({})).goto(input)", address)
        shown = browser.do(STORY)
    assert shown["kept"] == [{}, {}, ""]
    assert {url.split("/")[2] for url in shown["asked"]} == {origin}
    assert all(url.startswith(f"http://{origin}/{rest.partition('/')[0]}/") for url in shown["asked"])
    assert [one for one in shown["said"] if "Failed to load resource" not in one] == []
    assert SECRET not in json.dumps(shown["asked"])


@pytest.mark.long
@pytest.mark.cpu(8)
def test_the_page_of_a_stage_with_signatures(browser: Chromium, tmp_path: Path) -> None:
    """The gateway checks every signature. With the credentials of another account the command serves nothing."""
    project = with_settings(copied(tmp_path / "project"), api_auth="iam")
    with running(tmp_path, project) as service:
        direct = f"http://127.0.0.1:{service.port}"
        assert status_of(f"{direct}/connections") == status_of(f"{direct}/console") == 403
        used(browser, service, project)
        known = environment(**CREDENTIALS | {"AWS_SECRET_ACCESS_KEY": "another"})
        done = subprocess.run(command(direct), cwd=project, env=known, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"streamkeeper: {direct} refuses: 403 Forbidden: The request signature")
