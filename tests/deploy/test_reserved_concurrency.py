"""How much of the account's concurrency a stage reserves, and the message if the account has too little."""

import contextlib
import json
from typing import Any

from local import stages
from tests.deploy import node
from tests.http_server import Answer, Request, answering

# Runs a hook of the plugin for each job of a list; returns what the functions have then, and what is logged or thrown.
SCRIPT = """
const Plugin = require('./packaging/reserved-concurrency.cjs');
const names = ['connectionManager', 'connectionControl', 'connectionWatch'];
const config = {region: 'us-east-1', maxAttempts: 1, credentials: {accessKeyId: 'a', secretAccessKey: 'b'}};
const run = async ([hook, settings, endpoint]) => {
  process.env.AWS_ENDPOINT_URL = endpoint;
  const functions = Object.fromEntries(names.map((key) => [key, {name: key}]));
  const serverless = {
    service: {custom: {settings}, functions}, classes: {Error}, getProvider: () => ({getAwsSdkV3Config: () => config}),
  };
  const said = [];
  const plugin = new Plugin(serverless, {}, {log: {notice: (line) => said.push(line)}});
  await Promise.resolve(plugin.hooks[hook]()).catch((error) => said.push(error.message));
  return {functions, said};
};
const answers = [];
for (const job of given) answers.push(await run(job));
return answers;
"""
PROD = {"connection_concurrency": 0, "control_concurrency": 10, "watch_concurrency": 2}
BOUNDED = PROD | {"connection_concurrency": 110}
NOWHERE = "http://127.0.0.1:1"
Case = tuple[dict[str, int], int | None, dict[str, int]]


def account(quota: int | None, reserved: dict[str, int]) -> contextlib.AbstractContextManager[str]:
    """Return Lambda's answers for an account with this quota, of which functions have some; None makes it refuse."""

    def answer(request: Request) -> Answer:
        name = request.path.split("/")[-2]
        status, said = 404, dict[str, object](__type="ResourceNotFoundException")
        if quota is None:
            status, said = 403, {"__type": "AccessDeniedException"}
        elif request.path.startswith("/2016-08-19/account-settings"):
            left = quota - sum(reserved.values())
            limit = {"ConcurrentExecutions": quota, "UnreservedConcurrentExecutions": left}
            status, said = 200, {"AccountLimit": limit}
        elif name in reserved:
            status, said = 200, {"ReservedConcurrentExecutions": reserved[name]}
        return Answer(status, body=json.dumps(said).encode())

    return answering(answer)


def run(*jobs: tuple[str, dict[str, int], str]) -> list[dict[str, Any]]:
    """Return the functions' reservations after each job, a hook with settings at an endpoint, and its messages."""
    answers: list[dict[str, Any]] = node.run(SCRIPT, jobs)
    return answers


def check(*cases: Case) -> list[list[str]]:
    """Return the messages before each deployment, of settings to an account with a quota."""
    with contextlib.ExitStack() as accounts:
        hook = "before:deploy:deploy"
        jobs = [(hook, each, accounts.enter_context(account(quota, reserved))) for each, quota, reserved in cases]
        return [answer["said"] for answer in run(*jobs)]


def test_a_stage_reserves_its_number_of_concurrency() -> None:
    """For 0 nothing is reserved, because Lambda would take 0 as "may not run"."""
    (answer,) = run(("before:package:compileFunctions", PROD, NOWHERE))
    found = {key: one["reservedConcurrency"] for key, one in answer["functions"].items() if len(one) > 1}
    assert found == {"connectionControl": 10, "connectionWatch": 2}
    prod = stages.load("prod")
    assert {name: prod[name] for name in PROD} == PROD


def test_an_account_with_too_little_concurrency_stops_the_deployment() -> None:
    """One sentence says so first. A new account has 10, and CloudFormation would roll back a half-made stack."""
    quotas = {10: 0, 50: 0, 100: 0, 111: 11}
    assert check(*((PROD, quota, {}) for quota in quotas)) == [
        [
            "The stage reserves concurrency (control_concurrency 10, watch_concurrency 2), 12 more than now, but of "
            f"this account's quota of {quota} only {may} more may be reserved. Ask for a higher quota (Service Quotas, "
            'AWS Lambda, "Concurrent executions"), or set these to 0 in the settings of the stage: docs/deploy.md, '
            '"Concurrency".'
        ]
        for quota, may in quotas.items()
    ]


def test_an_account_with_enough_concurrency_gets_no_message() -> None:
    """An earlier deployment's reservations count once. A stage that reserves nothing sends no request."""
    had = {"connectionControl": 10, "connectionWatch": 2}
    enough: list[Case] = [
        (PROD, 112, {}),
        (PROD, 112, had),
        (BOUNDED, 222, had),
        (PROD, 1_000, {"another": 888}),
        (dict.fromkeys(PROD, 0), None, {}),
    ]
    *nothing, too_little = check(*enough, (BOUNDED, 221, had))
    assert (nothing, len(too_little)) == ([[]] * len(enough), 1)


def test_a_person_who_may_not_read_the_quota_may_deploy() -> None:
    """A line says that the quota was not checked."""
    ((line,),) = check((PROD, None, {}))
    assert line == "Not checked whether the account has the concurrency that the stage reserves: AccessDeniedException"
