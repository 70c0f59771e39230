"""The requests of a local run to AWS, by role, and the verdict of a policy evaluator on each.

The run makes every kind of request that the project can make: `everything` drives a stream through all that happens to
it. The evaluator is `@cloud-copilot/iam-simulate`, which knows each action and the resources that it takes.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from local.permissions import guard, needs
from local.permissions.needs import Need, Role
from local.stages import ROOT
from local.template import ACCOUNT
from tests.handlers.servers import CHUNKED, Peer, Server, chunks
from tests.harness import STAGE, Service
from tests.local.support import client, until

EVALUATOR = ROOT / "tests" / "real" / "evaluate-permissions.cjs"
STREAM = "demo:all"
# The views of a stream on the page, besides its status.
VIEWS = ("timeline", "machine", "cost", "latest", "dead-letters")
ORPHAN = "demo:orphan"
LOGGED = "demo-log:all"
# Larger than an item when compressed, and smaller than the longest frame.
LARGE = os.urandom(450_000).hex().encode()
OVERSIZE = b"x" * 1_100_000


def upstream(peer: Peer) -> None:
    """Several events at once, one alone, one too large for an item, one longer than a frame may be; then silence.

    Each connection sends other bodies under the same ids, so that the stored ones are read back.
    """
    mark = str(id(peer)).encode()
    peer.send(CHUNKED)
    peer.send_chunk(b"".join(b"id: %d\ndata: %s\n\n" % (number, mark) for number in range(3)))
    peer.send_chunk(b"id: large\ndata: %s%s\n\n" % (mark, LARGE))
    peer.send_chunk(b"id: oversize\ndata: %s\n\n" % OVERSIZE)
    peer.send_chunk(b"id: last\ndata: last\n\n")
    peer.wait_until_gone()


# One event, and the end of the connection in the midst of the next: a gap follows.
breaks_off = chunks(b"id: 0\ndata: first\n\n", then=Peer.reset)


def everything(service: Service, server: Server) -> None:
    """Starts, renews, shows in each way, lists and stops a stream, has one rejected; the watch finds an orphan."""
    aws = f"http://127.0.0.1:{service.port + 1}"
    client("secretsmanager", aws).create_secret(Name="/streamkeeper/test/oanda/token", SecretString="token")
    # Its parameter is missing: the stream is rejected before a connection to the provider.
    service.post("oanda:one")
    reach(service, lambda: service.status("oanda:one") == "rejected")
    # There is room for one stream at a time, and the execution of a rejected one ends a moment later.
    answer: Any = until(lambda: (said := service.ask("POST", STREAM))[0] == 200 and said[1], 30)
    assert answer, service.log
    first = answer["executionArn"]
    reach(service, lambda: any("object" in item for item in service.items("events", STREAM)))
    assert service.post(STREAM)["already_running"]
    reach(service, lambda: len(server.peers) >= 3)
    reach(service, lambda: service.execution(first)["status"] != "RUNNING")
    second_claim(service, first.replace(":execution:", ":stateMachine:").rpartition(":")[0], aws)
    assert len(service.events(STREAM)) >= 5
    service.ask("GET", STREAM)
    service.ask("GET", "")
    for view in VIEWS:
        code, answer = service.ask("GET", f"{STREAM}/{view}")
        assert code == 200, (view, answer)
    look_for_orphans(aws)
    for stream in (STREAM, ORPHAN):
        stop(service, stream)
    assert until(lambda: service.ask("POST", LOGGED)[0] == 200, 30), service.log
    # The API knows the stream once its execution has claimed it.
    assert until(lambda: service.ask("GET", LOGGED)[0] == 200, 30), service.log
    assert until(lambda: len(service.events(LOGGED)) >= 3, 30), service.log
    stop(service, LOGGED)
    # A document of patterns is applied twice, and then another document replaces it.
    lines = f"{STREAM}\n!{LOGGED}*\n"
    assert service.ask_at("PUT", "fleet", lines)[0] == 200
    assert service.ask_at("PUT", "fleet", lines)[0] == 200
    reach(service, lambda: service.ask_at("GET", "fleet")[1]["state"] == "done")
    assert service.ask_at("PUT", "fleet", f"!{STREAM}")[0] == 200
    reach(service, lambda: service.ask_at("GET", "fleet")[1]["state"] == "done")


def stop(service: Service, stream: str) -> None:
    """Stops the stream and returns once no connection holds it."""
    service.ask("DELETE", stream)
    reach(service, lambda: service.ask("GET", stream)[1]["holder"] is None)


def reach(service: Service, condition: Callable[[], object]) -> None:
    """Returns once the condition holds; fails at once if a permission is missing."""
    answer = until(lambda: condition() or "ALERT: refused" in service.log, 30)
    service.check_permissions()
    assert answer, service.log


def second_claim(service: Service, machine_arn: str, aws: str) -> None:
    """Starts an execution beside the one that holds the stream; it reads the holder's state, and ends."""
    body = json.dumps({"pathParameters": {"streamId": STREAM}})
    arn = client("stepfunctions", aws).start_execution(stateMachineArn=machine_arn, input=body)["executionArn"]
    reach(service, lambda: service.execution(arn)["status"] == "SUCCEEDED")


def look_for_orphans(aws: str) -> None:
    """Runs the deployed watch once, while a lease names an execution that does not exist."""
    gone = f"arn:aws:states:us-east-1:{ACCOUNT}:execution:streamkeeper-{STAGE}-connections:gone"
    lease = {
        "PK": {"S": ORPHAN}, "SK": {"S": "lease"}, "execution": {"S": gone}, "generation": {"N": "1"},
        "started_at": {"S": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() - 600))},
    }  # fmt: skip
    client("dynamodb", aws).put_item(TableName=f"streamkeeper-{STAGE}-control", Item=lease)
    answer = client("lambda", aws).invoke(FunctionName=f"streamkeeper-{STAGE}-connection-watch", Payload=b"{}")
    seen = json.load(answer["Payload"])
    assert seen["orphans"] == [ORPHAN], seen


def recorded(data: Path) -> list[tuple[str, Need, bool]]:
    """Returns each (role, need, whether it was allowed) of a run."""
    lines = [json.loads(line) for line in (data / guard.RECORD).read_text().splitlines()]
    return [(line["role"], Need(line["action"], line["resource"]), line["allowed"]) for line in lines]


def of_the_platform(read: needs.Roles) -> list[tuple[str, Need]]:
    """Returns what Lambda itself requests in each function's role: it writes the output to the log group."""
    place = f"arn:aws:logs:us-east-1:{ACCOUNT}:log-group:/aws/lambda"
    return [
        (role.name, Need(f"logs:{action}", f"{place}/{name}:log-stream:2026/01/31/[$LATEST]0"))
        for name, role in read.functions.items()
        for action in ("CreateLogStream", "PutLogEvents")
    ]


def verdicts(asked: list[tuple[Role, Need]]) -> list[str]:
    """Returns iam-simulate's verdict on each request: Allowed, ImplicitlyDenied, ExplicitlyDenied, or an error."""
    node = shutil.which("node")
    assert node is not None
    requests = [
        {"role": role.name, "statements": statements(role), "action": need.action, "resource": need.resource}
        for role, need in asked
    ]
    run = subprocess.run(
        [node, str(EVALUATOR)], input=json.dumps({"account": ACCOUNT, "requests": requests}), cwd=ROOT,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    answers: list[str] = json.loads(run.stdout)
    return answers


def statements(role: Role) -> list[dict[str, Any]]:
    """Returns the statements of a role, as a policy has them."""
    return [
        {"Effect": one.effect, "Action": list(one.actions), "Resource": list(one.resources)} for one in role.statements
    ]
