"""What a stage reserves of the account's concurrency, and what is said where the account has not so much."""

import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from local import stages

# Runs a hook of the plugin, and prints what the functions have then, what is logged and what is thrown.
SCRIPT = """
const Plugin = require('./packaging/reserved-concurrency.cjs');
const [hook, settings] = process.argv.slice(1).map((text) => JSON.parse(text));
const names = ['connectionManager', 'connectionControl', 'connectionWatch'];
const functions = Object.fromEntries(names.map((key) => [key, {name: key}]));
const config = {region: 'us-east-1', maxAttempts: 1, credentials: {accessKeyId: 'a', secretAccessKey: 'b'}};
const serverless = {
  service: {custom: {settings}, functions}, classes: {Error}, getProvider: () => ({getAwsSdkV3Config: () => config}),
};
const said = [];
const plugin = new Plugin(serverless, {}, {log: {notice: (line) => said.push(line)}});
(async () => plugin.hooks[hook]())().catch((error) => said.push(error.message))
  .then(() => console.log(JSON.stringify({functions, said})));
"""
PROD = {"connection_concurrency": 0, "control_concurrency": 10, "watch_concurrency": 2}
BOUNDED = PROD | {"connection_concurrency": 110}


@contextlib.contextmanager
def account(quota: int | None, reserved: dict[str, int]) -> Iterator[str]:
    """Lambda's answers of an account with this quota, of which functions have some; without one it refuses to say."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.split("/")[-2]
            answer: dict[str, object] = {}
            if quota is None:
                status, answer = 403, {"__type": "AccessDeniedException"}
            elif self.path.startswith("/2016-08-19/account-settings"):
                left = quota - sum(reserved.values())
                limit = {"ConcurrentExecutions": quota, "UnreservedConcurrentExecutions": left}
                status, answer = 200, {"AccountLimit": limit}
            elif name in reserved:
                status, answer = 200, {"ReservedConcurrentExecutions": reserved[name]}
            else:
                status, answer = 404, {"__type": "ResourceNotFoundException"}
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def run(hook: str, settings: dict[str, int], endpoint: str = "http://127.0.0.1:1") -> tuple[dict[str, int], list[str]]:
    """What is reserved for each function after a hook of the plugin, and what it says."""
    command = ["node", "-e", SCRIPT, json.dumps(hook), json.dumps(settings)]
    environment = os.environ | {"AWS_ENDPOINT_URL": endpoint}
    done = subprocess.run(command, cwd=stages.ROOT, env=environment, capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    found = {
        key: one["reservedConcurrency"] for key, one in answer["functions"].items() if "reservedConcurrency" in one
    }
    return found, answer["said"]


def check(settings: dict[str, int], quota: int | None, **reserved: int) -> list[str]:
    """What is said before a deployment to an account with this quota, of which functions have some already."""
    with account(quota, reserved) as endpoint:
        return run("before:deploy:deploy", settings, endpoint)[1]


def test_concurrency_is_reserved_where_the_stage_says_a_number() -> None:
    """Nothing where it says 0, which Lambda would take for a function that may not run."""
    found, _ = run("before:package:compileFunctions", PROD)
    assert found == {"connectionControl": 10, "connectionWatch": 2}
    prod = stages.load("prod")
    assert {name: prod[name] for name in PROD} == PROD


@pytest.mark.parametrize(("quota", "may"), [(10, 0), (50, 0), (100, 0), (111, 11)])
def test_an_account_with_too_little_is_told_before_anything_is_deployed(quota: int, may: int) -> None:
    """In one sentence: a new account has 10, and CloudFormation would roll back what it has made by then."""
    assert check(PROD, quota) == [
        "The stage reserves concurrency (control_concurrency 10, watch_concurrency 2), 12 more than now, and of this "
        f"account's quota of {quota} only {may} may be reserved. Ask for a higher quota (Service Quotas, AWS Lambda, "
        '"Concurrent executions"), or set these to 0 in the settings of the stage: docs/deploy.md, "Concurrency".'
    ]


def test_an_account_with_enough_is_deployed_to_without_a_word() -> None:
    """What its functions have from an earlier deployment counts once; a stage that reserves nothing asks nothing."""
    assert check(PROD, 112) == []
    assert check(PROD, 112, connectionControl=10, connectionWatch=2) == []
    assert check(BOUNDED, 222, connectionControl=10, connectionWatch=2) == []
    assert len(check(BOUNDED, 221, connectionControl=10, connectionWatch=2)) == 1
    assert check(PROD, 1_000, another=888) == []
    assert check(dict.fromkeys(PROD, 0), None) == []


def test_whoever_may_not_ask_may_deploy() -> None:
    """A line says that nobody looked."""
    (line,) = check(PROD, None)
    assert line == "Nobody knows whether the account has the concurrency that the stage reserves: AccessDeniedException"
