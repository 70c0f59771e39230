"""`python -m bench.framing`: the speed of our SSE and NDJSON decoders beside the Python readers on PyPI, in one run.

Decides the events, how they are cut into chunks, and what is told of each reader: CPU time an event, the ratio to ours
at the same work, and for SSE which rules it keeps. The readers are no dependency of the product: they are installed
from bench/requirements.txt into an environment of their own, in which the benchmark runs. Invariant: a reader is timed
only on wires that it reads rightly, and in turns with the others.
"""

import argparse
import io
import json
import logging
import os
import subprocess
import sys
import time
import venv
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from bench import peers_ndjson, peers_sse, rules

OURS = "streamkeeper"
SIZES = (100, 10_000)
READ_BYTES = 16_384
WIRE_BYTES = 2_000_000
ROUNDS = 7
ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "bench" / "requirements.txt"
FOLDER = ROOT / ".streamkeeper-build" / "framing"

T = TypeVar("T")


class Row(NamedTuple):
    """One reader on one wire; `ratio` is its time by ours at the same work, so above 1 ours is ahead."""

    framing: str
    reader: str
    work: str
    event_bytes: int
    chunks: str
    cpu_us: float
    ours_us: float

    @property
    def ratio(self) -> float:
        """How many times ours is as fast."""
        return self.cpu_us / self.ours_us


class Task(NamedTuple):
    """A reader with the work it does, and what its events must be."""

    name: str
    work: str
    read: Callable[[Sequence[bytes]], Iterable[Any]]
    text_of: Callable[[Any], Any]


def text(number: int, event_bytes: int) -> str:
    """The JSON of an event, `event_bytes` long."""
    head = json.dumps({"number": number, "text": ""})
    return f"{head[:-2]}{'x' * (event_bytes - len(head))}{head[-2:]}"


def wires(framing: str, texts: list[str]) -> dict[str, list[bytes]]:
    """The events as they come: in reads of a socket, and each in a read of its own."""
    pattern = "event: update\nid: {}\ndata: {}\n\n" if framing == "sse" else "{1}\n"
    events = [pattern.format(number, one).encode() for number, one in enumerate(texts)]
    whole = b"".join(events)
    reads = [whole[at : at + READ_BYTES] for at in range(0, len(whole), READ_BYTES)]
    return {f"{READ_BYTES // 1024} KB": reads, "event": events}


def had(readers: Iterable[Callable[[], T]]) -> Iterator[T]:
    """The readers that can be had; of the others it is told why not."""
    for reader in readers:
        try:
            yield reader()
        except ImportError as error:
            print(f"bench.framing: a reader is left out: {error}", file=sys.stderr)


def tasks(framing: str) -> list[list[Task]]:
    """The readers, in groups that do the same work; the first of each group is ours."""
    if framing == "sse":
        readers = had(peers_sse.READERS)
        return [[Task(one.name, "events", _events_of(one), _data_of(one)) for one in readers]]
    groups: dict[str, list[Task]] = {}
    for peer in had(peers_ndjson.READERS):
        if peer.work not in groups:
            own = peers_ndjson.ours(peer.work)
            groups[peer.work] = [Task(own.name, own.work, own.read, _text)]
        groups[peer.work].append(Task(peer.name, peer.work, peer.read, _text))
    return list(groups.values())


def _events_of(reader: peers_sse.Reader) -> Callable[[Sequence[bytes]], Iterable[Any]]:
    return lambda chunks: reader.read(chunks).events


def _data_of(reader: peers_sse.Reader) -> Callable[[Any], Any]:
    return lambda event: reader.look(event)[0]


def _text(line: Any) -> Any:
    """A line, or what was parsed of it, as the text that it was."""
    found = getattr(line, "data", line)
    return json.dumps(found) if isinstance(found, dict) else found.removesuffix("\n")


def timed(group: list[Task], chunks: list[bytes], expected: list[str], rounds: int) -> dict[str, float]:
    """CPU seconds of each reader, the least of its rounds; raises ValueError where one reads something else."""
    least: dict[str, float] = {}
    for turn in range(rounds):
        for task in group:
            with redirect_stdout(io.StringIO()):
                if not turn and [task.text_of(one) for one in task.read(chunks)] != expected:
                    raise ValueError(f"{task.name} reads something else than was sent")
                begun_s = time.process_time()
                for _ in task.read(chunks):
                    pass
                took_s = time.process_time() - begun_s
            least[task.name] = min(least.get(task.name, took_s), took_s)
    return least


def measure(wire_bytes: int = WIRE_BYTES, rounds: int = ROUNDS) -> list[Row]:
    """A row for each reader, framing, size and way of cutting."""
    rows = []
    for framing in ("sse", "ndjson"):
        for group in tasks(framing):
            for event_bytes in SIZES:
                texts = [text(number, event_bytes) for number in range(max(wire_bytes // event_bytes, 2))]
                for name, chunks in wires(framing, texts).items():
                    least = timed(group, chunks, texts, rounds)
                    each = {who: round(took_s / len(texts) * 1e6, 3) for who, took_s in least.items()}
                    rows += [Row(framing, t.name, t.work, event_bytes, name, each[t.name], each[OURS]) for t in group]
    return rows


def kept() -> dict[str, dict[str, rules.Verdict]]:
    """By reader, then by rule, whether it is kept."""
    with redirect_stdout(io.StringIO()):
        return {reader.name: rules.verdicts(reader) for reader in had(peers_sse.READERS)}


def table(rows: list[Row], verdicts: dict[str, dict[str, rules.Verdict]]) -> Iterator[str]:
    """The lines that a person reads: microseconds of CPU an event and the ratio to ours, then the rules."""
    columns = list(dict.fromkeys((row.event_bytes, row.chunks) for row in rows))
    for framing in ("sse", "ndjson"):
        heads = " | ".join(f"{event_bytes:,} B, {chunks}" for event_bytes, chunks in columns)
        yield f"| {framing}: CPU µs an event (ratio) | work | {heads} |"
        yield "|---" * (len(columns) + 2) + "|"
        cells: dict[tuple[str, str], list[str]] = {}
        for row in rows:
            if row.framing == framing:
                cells.setdefault((row.work, row.reader), []).append(f"{row.cpu_us:.2f} ({row.ratio:.1f})")
        for (work, reader), found in cells.items():
            yield f"| {reader} | {work} | " + " | ".join(found) + " |"
        yield ""
    yield f"| rules of SSE | {' | '.join(rules.NAMES)} |"
    yield "|---" * (len(rules.NAMES) + 1) + "|"
    for reader, of_reader in verdicts.items():
        yield f"| {reader} | " + " | ".join(of_reader[name] for name in rules.NAMES) + " |"


def behind(rows: list[Row]) -> list[Row]:
    """Where a reader is faster than ours."""
    return [row for row in rows if row.ratio < 1]


def install() -> Path:
    """The Python of the environment in which the readers are, made anew when the lock has changed."""
    python, note = FOLDER / "bin" / "python", FOLDER / "installed.txt"
    if not note.is_file() or note.read_text() != LOCK.read_text():
        print(f"bench.framing: installs {LOCK.relative_to(ROOT)} into {FOLDER.relative_to(ROOT)}", file=sys.stderr)
        venv.create(FOLDER, clear=True, with_pip=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
        subprocess.run([*command, "-r", str(LOCK)], check=True)
        note.write_text(LOCK.read_text())
    return python


def main(argv: list[str] | None = None) -> int:
    """Returns 0 once it is measured; where a reader is ahead of ours is told on standard error."""
    parser = argparse.ArgumentParser(prog="python -m bench.framing", description="Measures decoders of SSE and NDJSON.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"how often each reads; the least counts ({ROUNDS})")
    parser.add_argument("--here", action="store_true", help="install nothing: compare with what this Python has")
    wanted = parser.parse_args(argv)
    if not wanted.here:
        again = [str(install()), "-m", "bench.framing", "--here", *(sys.argv[1:] if argv is None else argv)]
        return subprocess.run(again, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False).returncode
    logging.disable()  # what a reader thinks of a wire is no part of the comparison
    warnings.simplefilter("ignore")
    rows, verdicts = measure(rounds=wanted.rounds), kept()
    if wanted.json:
        print(json.dumps({"rows": [row._asdict() | {"ratio": round(row.ratio, 2)} for row in rows], "rules": verdicts}))
    else:
        print("\n".join(table(rows, verdicts)))
    for row in behind(rows):
        print(f"bench.framing: behind {row.reader}: {row}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
