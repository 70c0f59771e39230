"""The demonstration of `streamkeeper doctor --demo` at an API whose answers the test chooses."""

from typing import Any

import pytest

from local.api_client.http_client import Api
from local.doctor.account_facts import HERE, Account
from local.doctor.demonstration import played
from local.doctor.findings import State
from local.doctor.stage_template import Deployed
from tests.client.api_server import answers, asked, problem
from tests.handlers.servers import serving


def status(word: str, generation: int, holder: dict[str, Any] | None = None) -> Any:
    """The answer of a stream with this status."""
    said = {"reason": "refused", "verdict": "Refused.", "holder": holder}
    return answers({"stream": "demo", "status": word, "generation": generation} | said)


@pytest.mark.parametrize(
    "before", [answers(problem("never-started"), 404), status("rejected", 3)], ids=["never started", "rejected"]
)
def test_a_start_is_awaited_until_the_execution_has_claimed_the_stream(
    before: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then the API answers as before the start, which says nothing about it; a started stream is stopped."""
    monkeypatch.setattr("time.sleep", lambda _: None)
    started, connected = answers({"executionArn": "arn"}), status("running", 4, {"fence": 9})
    with serving(before, started, before, connected, answers({"stream": "demo"})) as server:
        account = Account(lambda _: None, HERE)
        findings = played(Api(server.address), account, Deployed("local", ()), "demo")
        assert next(findings).state is State.OK
        findings.close()
        assert asked(server)[-1] == "DELETE /connections/demo"
