"""The verb `doctor`: says whether a stage is well, by a line for each check, and mends what has drifted.

It asks and changes nothing, but with --repair, and with --demo, which starts a stream. Invariants: whatever a repair
changed is asked for again before the findings are printed; a demonstration that was started is stopped, also after
Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from local.costs import prices
from local.doctor import demonstration, fleet_checks, stage_checks
from local.doctor.account_facts import HERE, Account, Facts, collect
from local.doctor.findings import Finding, State
from local.doctor.stage_template import of_stack, of_this_machine
from local.printable import printable, saying
from local.reached_stage import clients_of
from local.streams import asking

WELL, WRONG = 0, 1
# One repair waits for another: a mapping for the stream, a stream for the table. So often it is asked again.
ROUNDS, REST_S = 15, 2.0


def add(subparsers: Any) -> None:
    """Adds the verb."""
    parser = subparsers.add_parser(
        "doctor",
        description="Asks a stage's account whether all is well: quotas beside what the fleet needs, tables, "
        "functions, versions, API, alarms, delivery, and, by the function that keeps streams connected, secrets and "
        "upstreams. A line for each check says what it is, what it should be, and what to do. Nothing is changed.",
        epilog="Exit status: 0 all is well, 1 something is wrong or could not be asked, 2 a mistake in the command. "
        "Without --stage, PORT (3000) and STREAMKEEPER_STAGE (local) choose the run on this machine. "
        "docs/doctor.md says which permissions it needs.",
    )
    parser.add_argument("--stage", metavar="S", help="a deployed stage; without it, the run on this machine")
    parser.add_argument("--repair", action="store_true", help="set what has drifted from the template back to it")
    parser.add_argument(
        "--demo", metavar="STREAM", nargs="?", const="",
        help="start a stream besides, have it hand over once, and stop it; without STREAM one that ships",
    )  # fmt: skip
    parser.add_argument("--url", metavar="ADDRESS", help="the API's address for --demo; without it, the stack's own")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each check")
    parser.set_defaults(run=asking.refusals(run))


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 where all is well, 1 where something is not; raises UserError."""
    stage, clients = clients_of(arguments.stage)
    account = Account(clients, HERE if arguments.stage is None else None)
    with saying("asking the account …", 2.0):
        deployed = of_this_machine(stage) if arguments.stage is None else of_stack(clients("cloudformation"), stage)

        facts: Facts = {}

        def look() -> list[Finding]:
            facts.update(collect(account, deployed))
            return [*stage_checks.judged(deployed, facts), *fleet_checks.judged(deployed, facts, prices.read())]

        found = _repaired(account, look) if arguments.repair else look()
    show = _show_json if arguments.json else _show
    for finding in found:
        show(finding)
    if arguments.demo is not None:
        api = demonstration.api_of(account, deployed, arguments.url)
        stream_id = demonstration.chosen(arguments.demo, facts["profiles"])
        for finding in demonstration.played(api, account, deployed, stream_id):
            found.append(finding)
            show(finding)
    ill = [one for one in found if not one.is_well]
    unknown = sum(one.state is State.UNKNOWN for one in ill)
    words = "all is well" if not ill else f"{len(ill) - unknown} wrong, {unknown} not known"
    print(f"{len(found)} checks: {words}", file=sys.stderr)
    return WRONG if ill else WELL


def _repaired(account: Account, look: Callable[[], list[Finding]]) -> list[Finding]:
    """The findings once nothing is left that can be mended, or it does not help.

    What was taken is not sent again; what was refused is, for a table takes one change at a time.
    """
    sent: set[str] = set()
    for _ in range(ROUNDS):
        found = look()
        wrong = [(one.what, one.mend) for one in found if one.state is State.WRONG and one.mend is not None]
        if not wrong:
            break
        for what, mend in wrong:
            if what in sent:
                continue
            why = account.mend(mend)
            sent |= set() if why else {what}
            words = f"refused, and tried again: {why}" if why else f"{mend.operation} sent"
            print(printable(f"repair {what}: {words}"), file=sys.stderr, flush=True)
        time.sleep(REST_S)
    return found


def _show(finding: Finding) -> None:
    print(printable(finding.line()), flush=True)


def _show_json(finding: Finding) -> None:
    print(json.dumps(finding.as_json()), flush=True)
