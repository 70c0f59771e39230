"""The verb `doctor`: checks a stage, with a line for each check, and mends what has drifted.

It changes nothing without --repair, or --demo, which starts a stream. Invariants: after a repair all facts are read
again before the findings are printed; a demonstration that was started is stopped, even after Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from handlers.api.verdict import plural
from local.costs import prices
from local.doctor import demonstration, fleet_checks, stage_checks
from local.doctor.account_facts import LOCAL_SERVICES, Account, Facts, collect_facts
from local.doctor.findings import Finding, State
from local.doctor.stage_template import read_deployed_stage, read_local_stage
from local.printable import print_line, printable, report_if_slow
from local.stage_clients import client_factory_of, connect_to_stage
from local.streams import api_session

WELL, WRONG = 0, 1
# A repair may wait for another: a mapping for the stream, a stream for the table. How often to check again.
ROUNDS, REST_S = 15, 2.0


def add(subparsers: Any) -> None:
    """Adds the verb."""
    parser = subparsers.add_parser(
        "doctor",
        description="Checks a stage in its account: quotas against the needs of the fleet, tables, functions, "
        "versions, API, alarms, delivery and, through the function that keeps streams connected, secrets and "
        "upstreams. Each check prints one line: the actual value, the expected one, and what to do. Without --repair "
        "nothing changes.",
        epilog="Exit status: 0 all is well, 1 something is wrong or could not be checked, 2 a mistake in the command "
        "or no run on this machine. "
        "Without --stage, PORT (3000) and STREAMKEEPER_STAGE (local) choose the run on this machine. "
        "docs/doctor.md says which permissions it needs.",
    )
    parser.add_argument("--stage", metavar="S", help="a deployed stage (default: the run on this machine)")
    parser.add_argument("--repair", action="store_true", help="reset what has drifted from the template")
    parser.add_argument(
        "--demo",
        metavar="STREAM",
        nargs="?",
        const="",
        help="also start a stream, let it hand over once, and stop it (default: a demonstration stream)",
    )
    parser.add_argument("--url", metavar="ADDRESS", help="the API's address for --demo (default: the stack's own)")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each check")
    parser.set_defaults(run=api_session.print_refusals(run))


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 if all is well, or else 1; raises UserError."""
    stage, clients = client_factory_of(arguments.stage)
    account = Account(clients, LOCAL_SERVICES if arguments.stage is None else None)
    with report_if_slow("checking the account …"):
        if arguments.stage is None:
            connect_to_stage(None)
        deployed = (
            read_local_stage(stage)
            if arguments.stage is None
            else read_deployed_stage(clients("cloudformation"), stage)
        )

        facts: Facts = {}

        def check() -> list[Finding]:
            facts.update(collect_facts(account, deployed))
            return [
                *stage_checks.check_stage(deployed, facts),
                *fleet_checks.check_fleet(deployed, facts, prices.read()),
            ]

        found = _repair(account, check) if arguments.repair else check()

    def print_finding(finding: Finding) -> None:
        if arguments.json:
            print(json.dumps(finding.as_json()), flush=True)
        else:
            print_line(finding.line(), 7)

    for finding in found:
        print_finding(finding)
    if arguments.demo is not None:
        api = demonstration.api_of(account, deployed, arguments.url)
        stream_id = demonstration.choose_stream(arguments.demo, facts["profiles"])
        with report_if_slow(f"starting {stream_id}; its handover takes some seconds …"):
            for finding in demonstration.run_demo(api, account, deployed, stream_id):
                found.append(finding)
                print_finding(finding)
    ill = [one for one in found if not one.is_well]
    unknown = sum(one.state is State.UNKNOWN for one in ill)
    words = "all is well" if not ill else f"{len(ill) - unknown} wrong, {unknown} not known"
    print(f"{plural(len(found), 'check')}: {words}", file=sys.stderr)
    return WRONG if ill else WELL


def _repair(account: Account, check: Callable[[], list[Finding]]) -> list[Finding]:
    """Returns the findings once nothing more can be mended, or mending does not help.

    An accepted request is not repeated; a refused one is, because a table takes one change at a time.
    """
    sent: set[str] = set()
    for _ in range(ROUNDS):
        found = check()
        wrong = [(one.what, one.mend) for one in found if one.state is State.WRONG and one.mend is not None]
        if not wrong:
            break
        for what, mend in wrong:
            if what in sent:
                continue
            why = account.send_mend(mend)
            sent |= set() if why else {what}
            words = f"refused, and tried again: {why}" if why else f"{mend.operation} sent"
            print(printable(f"repair {what}: {words}"), file=sys.stderr, flush=True)
        time.sleep(REST_S)
    return found
