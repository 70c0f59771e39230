"""The command `streamkeeper`: which verb runs, and how a mistake of the user's is reported.

Each verb is a module with `add(subparsers)`, which sets `run(arguments)`; only the one that is asked for is imported.
So `--help` and `--version` need no package besides what ships to Lambda, and a replay starts without the service.
Invariant: a UserError, and a package that is not installed, is one sentence on standard error and exit status 2.
"""

import argparse
import gc
import importlib
import os
import sys
from collections.abc import Collection, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

from local.printable import accept_any_text, printable_lines
from local.user_error import UserError

INTERRUPTED = 130
BROKEN_PIPE = 141


class Verb(NamedTuple):
    """One verb. help: what --help says of it."""

    module: str
    help: str


# By what a person wants; --help shows them so.
GROUPS = {
    "Begin": {
        "run": Verb("local.service.command", "run the whole service on this machine"),
        "completion": Verb("local.completion", "print the completion for bash, zsh or fish"),
    },
    "Look": {
        "list": Verb("local.streams.verbs", "list all streams: status, for how long, and why one is not well"),
        "status": Verb("local.streams.verbs", "show one stream: its verdict, lanes, cursor and figures"),
        "events": Verb("local.streams.event_listing", "print stored events, or export them into a file"),
        "follow": Verb("local.streams.follow", "print events as they are stored, until Ctrl-C"),
        "gaps": Verb("local.streams.verbs", "list the gaps of a stream"),
        "archive": Verb("local.archive.command", "write events into Parquet files by day and hour, each once"),
        "sinks": Verb("local.streams.verbs", "show the sinks of a stream; pause, resume, replay or skip"),
        "console": Verb("local.api_client.console", "show the page of any stage in your browser"),
        "doctor": Verb("local.doctor.command", "check a stage's account, and mend what has drifted"),
    },
    "Change": {
        "start": Verb("local.streams.verbs", "start a stream or many, or report that it runs already"),
        "stop": Verb("local.streams.verbs", "stop a stream or many"),
        "apply": Verb("local.streams.fleet_verbs", "start and stop streams as a document says"),
        "repair": Verb("local.streams.verbs", "fetch what the gaps of a stream missed"),
        "redrive": Verb("local.redrive.command", "list dead-letter messages and put back what can be"),
        "backup": Verb("local.backup.command", "copy streams with all their records into a folder or a bucket"),
        "restore": Verb("local.backup.command", "copy streams out of a backup, or of other tables, into a stage"),
        "move": Verb("local.backup.command", "move streams to another stage, region or table"),
        "upgrade": Verb("local.upgrades.command", "move the streams to the deployed version, in waves"),
        "request": Verb("local.api_client.command", "send a request to the HTTP API, signed where it must be"),
    },
    "Design": {
        "profile": Verb("local.profiles.command", "write, check and try stream profiles"),
        "cost": Verb("local.costs.command", "show what a stream costs a month on AWS, and by which part"),
        "plan": Verb("local.scale.plan_command", "propose settings for streams, with price and first limit"),
        "compare": Verb("local.compare.command", "compare ways to keep a stream connected"),
        "asl": Verb("local.workbench.command", "check, run or draw a state machine's definition"),
    },
    "Prove": {
        "replay": Verb("local.replay.command", "run a machine against a scripted upstream in virtual time"),
        "timeline": Verb("local.history.command", "draw what an execution did, from its history"),
        "chaos": Verb("local.chaos.command", "run generated schedules of faults in virtual time"),
    },
}
VERBS = {name: verb for verbs in GROUPS.values() for name, verb in verbs.items()}
OURS = frozenset({"handlers", "local", "timeline"})


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 for a mistake of the user's."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Whatever text comes, and whatever the terminal can show, a line is printed.
    for stream in (sys.stdout, sys.stderr):
        accept_any_text(stream)
    try:
        status = _run(arguments)
        sys.stdout.flush()
    except UserError as mistake:
        print(f"streamkeeper: {printable_lines(str(mistake))}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if not package or package in OURS:
            raise
        print(f"streamkeeper: {_needs(package, arguments)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (`| head`) has seen enough. What is buffered goes nowhere, or Python would complain at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return status


def _run(arguments: list[str]) -> int:
    name = arguments[0] if arguments else ""
    parser = parser_of([name])
    parsed = parser.parse_args(arguments)
    status: int = parsed.run(parsed)
    return status


def _add(name: str, subparsers: Any) -> None:
    """Adds a verb with all that it takes. A module with several verbs adds them by their names."""
    # What a module makes at its import stays: searching it for garbage takes a tenth of the time.
    gc.disable()
    try:
        module = importlib.import_module(VERBS[name].module)
    finally:
        gc.enable()
    # A verb is added with what the list of verbs says of it: a completion offers no verb that says nothing.
    described = SimpleNamespace(add_parser=partial(subparsers.add_parser, help=VERBS[name].help))
    module.add(described, *([name] if hasattr(module, "VERBS") else []))


def parser_of(names: Collection[str]) -> argparse.ArgumentParser:
    """The parser; only the verbs with these names have all that they take, for the rest is imported then."""
    parser = argparse.ArgumentParser(
        prog="streamkeeper",
        description="Keeps HTTP streams connected: runs the service here, and works on any stage.",
        epilog="`streamkeeper VERB --help` has examples of each.",
        formatter_class=_Grouped,
    )
    parser.add_argument("--version", action=_Version)
    subparsers = parser.add_subparsers(title="verbs", required=True, metavar="VERB")
    for name, verb in VERBS.items():
        if name in names:
            _add(name, subparsers)
        else:
            subparsers.add_parser(name, help=verb.help)
    return parser


class _Grouped(argparse.HelpFormatter):
    """Lists the verbs by their groups."""

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, argparse._SubParsersAction):
            return super()._format_action(action)
        listed = {choice.dest: super(_Grouped, self)._format_action(choice) for choice in action._get_subactions()}
        return "".join(f"\n{group}:\n{''.join(map(listed.__getitem__, verbs))}" for group, verbs in GROUPS.items())


class _Version(argparse.Action):
    """Prints the version. To read it takes a third of what `--help` takes in all, so only who asks pays for it."""

    def __init__(self, option_strings: list[str], **_: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help="show program's version number and exit")

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib import metadata

        try:
            version = metadata.version("streamkeeper")
        except metadata.PackageNotFoundError:
            version = "(not installed)"
        print(f"{parser.prog} {version}")
        parser.exit()


def _needs(package: str, arguments: list[str]) -> str:
    return (
        f"`streamkeeper {arguments[0]}` needs the Python package {package}, which is not installed: "
        "`pip install streamkeeper` brings all that every verb needs, `make setup` in a checkout."
    )


if __name__ == "__main__":
    sys.exit(main())
