"""The command `streamkeeper`: runs a verb, and reports mistakes of the user.

Each verb has a module with `add(subparsers)`, which sets `run(arguments)`; only the module of the given verb is
imported. So `--help` and `--version` need only the packages that ship to Lambda, and a replay imports no service.
Invariant: a UserError, or a missing package, is one sentence on standard error with exit status 2.
"""

import argparse
import errno
import importlib
import os
import re
import sys
from collections.abc import Collection, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

from local.garbage_collection import no_garbage_collection
from local.terminal import UserError, accept_any_text, printable_lines

INTERRUPTED = 130
BROKEN_PIPE = 141


class Verb(NamedTuple):
    """One verb, with its line in --help."""

    module: str
    help: str


# Grouped by purpose, as --help shows them.
GROUPS = {
    "Begin": {
        "run": Verb("local.service.command", "run the whole service on this machine"),
        "completion": Verb("local.completion", "print the completion for bash, zsh or fish"),
    },
    "Look": {
        "list": Verb("local.streams.verbs", "list all streams: status, since when, and what is wrong"),
        "status": Verb("local.streams.verbs", "show one stream: its verdict, lanes, cursor and figures"),
        "events": Verb("local.streams.event_listing", "print stored events, or export them into a file"),
        "follow": Verb("local.streams.follow", "print events as they are stored, until Ctrl-C"),
        "gaps": Verb("local.streams.verbs", "list the gaps of a stream"),
        "archive": Verb("local.archive.command", "write events into Parquet files by day and hour, each once"),
        "sinks": Verb("local.streams.verbs", "show the sinks of a stream; pause, resume, replay or skip"),
        "console": Verb("local.api_client.console", "serve the page of any stage on this machine"),
        "doctor": Verb("local.doctor.command", "check a stage in its AWS account, and reset what has drifted"),
    },
    "Change": {
        "start": Verb("local.streams.verbs", "start a stream, or all that match a pattern"),
        "stop": Verb("local.streams.verbs", "stop a stream, or all that match a pattern"),
        "apply": Verb("local.streams.fleet_verbs", "start and stop streams as a document specifies"),
        "repair": Verb("local.streams.verbs", "fetch the events that a stream's gaps missed"),
        "redrive": Verb("local.redrive.command", "list dead-letter messages, and put events back"),
        "backup": Verb("local.backup.command", "copy streams with all their records into a folder or a bucket"),
        "restore": Verb("local.backup.command", "copy streams from a backup, or from other tables, into a stage"),
        "move": Verb("local.backup.command", "move streams to another stage, region or table"),
        "upgrade": Verb("local.upgrades.command", "move streams to the deployed version, in waves"),
        "request": Verb("local.api_client.command", "send a request to the HTTP API, signed if necessary"),
    },
    "Design": {
        "profile": Verb("local.profiles.command", "write, check and try stream profiles"),
        "cost": Verb("local.costs.command", "show what a stream costs a month on AWS, part by part"),
        "plan": Verb("local.scale.plan_command", "propose settings for streams, and show price and limits"),
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
OWN_PACKAGES = frozenset({"handlers", "local", "timeline"})


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, 2 for a mistake of the user, or what the verb returns."""
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    # Any text is printed, whatever the terminal can show.
    for stream in (sys.stdout, sys.stderr):
        accept_any_text(stream)
    try:
        _refuse_misspelled(arguments[:1])
        parsed = build_parser(arguments[:1]).parse_args(arguments)
        status: int = parsed.run(parsed)
        sys.stdout.flush()
    except UserError as mistake:
        print(f"streamkeeper: {printable_lines(str(mistake))}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if not package or package in OWN_PACKAGES:
            raise
        print(
            f"streamkeeper: `streamkeeper {arguments[0]}` needs the Python package {package}, which is not installed: "
            "run `pip install streamkeeper`, or `make setup` in a checkout.",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as problem:
        is_full = problem.errno in (errno.ENOSPC, errno.EDQUOT)
        if not is_full and not isinstance(problem, BrokenPipeError):
            raise
        # Nothing more can be printed. Discard the buffer, or Python would complain at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if is_full:
            print("streamkeeper: The disk is full: free some space, and run the command again.", file=sys.stderr)
        return 2 if is_full else BROKEN_PIPE  # the reader (`| head`) has seen enough
    return status


def _refuse_misspelled(names: Sequence[str]) -> None:
    """Raises UserError with a similar verb if there is one; argparse lists all of them."""
    if names and names[0] not in VERBS and not names[0].startswith("-"):
        from difflib import get_close_matches

        if near := get_close_matches(names[0], VERBS, 1):
            raise UserError(f"There is no verb {names[0]!r}. Did you mean {near[0]!r}? --help lists all verbs.")


def build_parser(names: Collection[str]) -> argparse.ArgumentParser:
    """The parser; only the verbs with these names get arguments, and only their modules are imported."""
    parser = argparse.ArgumentParser(
        prog="streamkeeper",
        description="Keeps HTTP streams connected. Runs the whole service on this machine, and operates the streams of "
        "any deployed stage.",
        epilog="`streamkeeper VERB --help` shows examples.",
        formatter_class=_GroupedHelp,
    )
    parser.add_argument("--version", action=_VersionAction)
    subparsers = parser.add_subparsers(title="verbs", required=True, metavar="VERB", parser_class=_VerbParser)
    for name, verb in VERBS.items():
        if name in names:
            # Imports create no garbage; searching for it would take a tenth of the time.
            with no_garbage_collection():
                module = importlib.import_module(VERBS[name].module)
            # A completion offers only verbs that have a help text.
            described = SimpleNamespace(add_parser=partial(subparsers.add_parser, help=VERBS[name].help))
            module.add(described, *([name] if hasattr(module, "VERBS") else []))
        else:
            subparsers.add_parser(name, help=verb.help)
    return parser


class _VerbParser(argparse.ArgumentParser):
    """The parser of a verb: options and operands come in any order; an unknown one is refused with the verb's usage.

    A text that begins with a minus and a digit, such as -5/s, is a value, so the verb says what is wrong with it.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._negative_number_matcher, self._is_mixed = re.compile(r"-\d"), False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        parsed, unknown = super().parse_known_args(args, namespace)
        if self._is_mixed:
            return parsed, unknown
        if unknown and self._subparsers is None:
            # By itself argparse takes no operand behind an option if it may be left out.
            self._is_mixed = True
            parsed, unknown = self.parse_known_intermixed_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed, unknown


class _GroupedHelp(argparse.HelpFormatter):
    """Lists the verbs by group."""

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, argparse._SubParsersAction):
            return super()._format_action(action)
        listed = {choice.dest: super(_GroupedHelp, self)._format_action(choice) for choice in action._get_subactions()}
        return "".join(f"\n{group}:\n{''.join(map(listed.__getitem__, verbs))}" for group, verbs in GROUPS.items())


class _VersionAction(argparse.Action):
    """Prints the version. Reading it takes a third of the time of `--help`, so it is done only on request."""

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


if __name__ == "__main__":
    sys.exit(main())
