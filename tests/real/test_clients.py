"""Clients are generated from the API's document in Python and TypeScript, and programs with them pass type checkers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from handlers.api.openapi.document import document
from handlers.fleet.fleet_document import LINES, TOML
from tests.local.support import PROJECT

PYTHON = '''
from streams_client import AuthenticatedClient
from streams_client.api.events import list_events
from streams_client.api.streams import get_stream, list_streams, start_stream
from streams_client.models.event import Event
from streams_client.models.problem import Problem
from streams_client.types import Unset


def body_of(event: Event) -> str | None:
    """Each member of an event has a type of its own."""
    return None if isinstance(event.data, Unset) else event.data


def names(client: AuthenticatedClient) -> list[str]:
    page = list_streams.sync(client=client, limit=10)
    if page is None or isinstance(page, Problem):
        return []
    return [f"{one.stream}: {one.status.value}, {one.open_gaps} open gaps" for one in page.streams]


def story(client: AuthenticatedClient) -> list[str | None]:
    started = start_stream.sync(stream_id="demo", client=client)
    assert started is not None and not isinstance(started, Problem) and not started.already_running
    stream = get_stream.sync(stream_id="demo", client=client)
    assert stream is not None and not isinstance(stream, Problem)
    verdict: str = stream.verdict
    page = list_events.sync(stream_id="demo", client=client)
    assert page is not None and not isinstance(page, (Problem, str))
    return [verdict, *map(body_of, page.events)]
'''
TYPESCRIPT = """
import createClient from 'openapi-fetch';
import type { components, paths } from './schema';

type Json = 'application/json' | 'application/problem+json';
const client = createClient<paths, Json>({ baseUrl: 'http://127.0.0.1:3000' });

const body = (event: components['schemas']['Event']): string | undefined => event.data;

export async function story(): Promise<(string | undefined)[]> {
  const path = { streamId: 'demo' };
  const { data: stream, error } = await client.GET('/connections/{streamId}', { params: { path } });
  if (error) throw new Error(error.detail);
  const status: 'running' | string = stream.status;
  const page = await client.GET('/connections/{streamId}/events', { params: { path, query: { limit: 3 } } });
  return [status, stream.verdict, ...(page.data?.events ?? []).map(body)];
}
"""
# No checker may accept this: a member that no answer has.
WRONG_PYTHON = "    verdict: str = stream.verdikt\n"
WRONG_TYPESCRIPT = "stream.verdikt"


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clients")
    (folder / "openapi.json").write_text(json.dumps(document()))
    return folder


def done(folder: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.long
@pytest.mark.cpu(60)
def test_a_python_client_is_generated_and_checked(described: Path) -> None:
    """openapi-python-client skips no part, and mypy --strict accepts a program, but not one with a mistake."""
    tool = str(Path(sys.executable).with_name("openapi-python-client"))
    # The tool knows neither media type of the fleet's document: TOML, or a line for each stream.
    others = dict.fromkeys((TOML, LINES), "application/octet-stream")
    (described / "config.yml").write_text(json.dumps({"post_hooks": [], "content_type_overrides": others}))
    arguments = (
        "--path", "openapi.json", "--output-path", "streams_client", "--meta", "none", "--config", "config.yml",
    )  # fmt: skip
    made = done(described, tool, "generate", *arguments, "--fail-on-warning")
    assert made.returncode == 0, made.stdout + made.stderr
    program = described / "program.py"
    for text, status in ((PYTHON, 0), (PYTHON.replace("    verdict: str = stream.verdict\n", WRONG_PYTHON), 1)):
        program.write_text(text)
        checked = done(described, sys.executable, "-m", "mypy", "--strict", "--cache-dir", "cache", "program.py")
        assert checked.returncode == status, checked.stdout


@pytest.mark.long
@pytest.mark.cpu(30)
def test_a_typescript_client_is_generated_and_checked(described: Path) -> None:
    """openapi-typescript makes types, and tsc --strict accepts a program, but not one with a mistake."""
    (described / "node_modules").symlink_to(PROJECT / "node_modules")
    made = done(described, "node_modules/.bin/openapi-typescript", "openapi.json", "--output", "schema.d.ts")
    assert made.returncode == 0, made.stdout + made.stderr
    options = ("--strict", "--noEmit", "--module", "esnext", "--moduleResolution", "bundler", "--target", "es2022")
    for text, status in ((TYPESCRIPT, 0), (TYPESCRIPT.replace("stream.verdict", WRONG_TYPESCRIPT), 2)):
        (described / "program.ts").write_text(text)
        checked = done(described, "node_modules/.bin/tsc", *options, "program.ts")
        assert checked.returncode == status, checked.stdout
