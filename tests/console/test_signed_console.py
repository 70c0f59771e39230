"""`streamkeeper console`: the page of a stage that asks for signatures, in a real Chromium.

The stage is a run on this machine with `api_auth: iam`, whose gateway checks every signature.
"""

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

from tests.console.chromium import chromium
from tests.harness import Service, running
from tests.local.support import environment
from tests.real.test_readme import copied

SECRET = "local"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project whose stage asks for a signature."""
    folder = copied(tmp_path_factory.mktemp("signed") / "project")
    stage = folder / "env" / "test.yml"
    stage.write_text(stage.read_text().replace("\napi_auth: key", "\napi_auth: iam"))
    return folder


@contextlib.contextmanager
def console(service: Service, project: Path) -> Iterator[str]:
    """The address that the command prints; Ctrl-C ends it."""
    command = [sys.executable, "-m", "local.cli", "console", "--sign", "--url", f"http://127.0.0.1:{service.port}"]
    known = environment(**CREDENTIALS)
    with subprocess.Popen(
        command, cwd=project, env=known, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGINT)
            status, said = process.wait(60), process.stderr.read()
    assert status == 130
    assert said == f"It asks http://127.0.0.1:{service.port} with your credentials, until Ctrl-C.\n"


def status_of(url: str, **headers: str) -> int:
    """What the address answers to somebody else."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=120) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code


def test_the_page_of_a_stage_with_signatures(project: Path, tmp_path: Path) -> None:
    """A stream is started, seen and stopped in it; nobody else is answered, and no credential is in the browser."""
    with chromium() as browser, running(tmp_path, project) as service:
        direct = f"http://127.0.0.1:{service.port}"
        assert status_of(f"{direct}/connections") == status_of(f"{direct}/console") == 403
        with console(service, project) as address:
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[A-Za-z0-9_-]{22}/console", address)
            origin, _, rest = address.removeprefix("http://").partition("/")
            for other in (f"http://{origin}/console", f"http://{origin}/", f"http://{origin}/{'x' * 22}/console"):
                assert status_of(other) == 404
            assert status_of(address) == 200
            assert status_of(address, Origin="http://another.example") == 403
            assert status_of(address, Host="another.example") == 403
            assert status_of(f"{address}/../../connections/none") in (400, 403, 404)
            shown = browser.do(
                """await page.goto(input);
                await page.locator('#link[data-state=live]').waitFor();
                await page.getByLabel('Start a stream').fill('demo:a/b c');
                await page.getByRole('button', { name: 'Start' }).click();
                await page.locator('h1 + .status', { hasText: 'Running' }).waitFor();
                await page.getByText(/events; as they come/).waitFor();
                const first = await page.locator('.events .body').first().textContent();
                const isOther = (text) => document.querySelector('.events .body').textContent !== text;
                await page.waitForFunction(isOther, first);
                await page.getByText(/Now in/).waitFor();
                await page.getByRole('button', { name: 'Stop' }).click();
                await page.getByRole('dialog').getByRole('button', { name: 'Stop' }).click();
                await page.locator('h1 + .status', { hasText: 'Stopped' }).waitFor();
                const kept = await page.evaluate(() => [{ ...sessionStorage }, { ...localStorage }, document.cookie]);
                return { kept, asked: page.asked, said: page.said }""",
                address,
            )
        assert shown["kept"] == [{}, {}, ""]
        assert {url.split("/")[2] for url in shown["asked"]} == {origin}
        assert all(url.startswith(f"http://{origin}/{rest.partition('/')[0]}/") for url in shown["asked"])
        assert [one for one in shown["said"] if "Failed to load resource" not in one] == []
        assert SECRET not in json.dumps(shown["asked"])
        # The credentials of somebody else: one line, before anything is served.
        command = [sys.executable, "-m", "local.cli", "console", "--sign", "--url", direct]
        known = environment(**CREDENTIALS | {"AWS_SECRET_ACCESS_KEY": "another"})
        done = subprocess.run(command, cwd=project, env=known, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"streamkeeper: {direct} refuses: 403 Forbidden: The request signature")
