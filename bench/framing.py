"""`python -m bench.framing`: measures our SSE and NDJSON decoders beside the Python readers on PyPI, in one run.

For each reader it reports the CPU time of an event, the ratio to ours at the same work, and for SSE which rules it
keeps. The readers are not dependencies of the product: they are installed from bench/requirements.txt into an
environment of their own, in which the benchmark runs.
Invariant: a reader is timed only on wires that it reads correctly, and in turns with the others.
"""

import io
import json
import logging
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from typing import Any, NamedTuple, TypeVar

from bench import peers_ndjson, peers_sse, rules
from bench.harness import options, python_of, say, show
from local.checkout import ROOT

OURS = "streamkeeper"
SIZES = (100, 10_000)
READ_BYTES = 16_384
WIRE_BYTES = 2_000_000
ROUNDS = 7
LOCK = ROOT / "bench" / "requirements.txt"

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
        """How many times as fast ours is."""
        return self.cpu_us / self.ours_us


class Task(NamedTuple):
    """A reader, the work it does, and how the text of one of its events is read."""

    name: str
    work: str
    read: Callable[[Sequence[bytes]], Iterable[Any]]
    text_of: Callable[[Any], Any]


def text(number: int, event_bytes: int) -> str:
    """Return the JSON of an event, `event_bytes` long."""
    head = json.dumps({"number": number, "text": ""})
    return f"{head[:-2]}{'x' * (event_bytes - len(head))}{head[-2:]}"


def wires(framing: str, texts: list[str]) -> dict[str, list[bytes]]:
    """Return the wire in two cuts: as a socket reads it, and each event in a read of its own."""
    pattern = "event: update\nid: {}\ndata: {}\n\n" if framing == "sse" else "{1}\n"
    events = [pattern.format(number, one).encode() for number, one in enumerate(texts)]
    whole = b"".join(events)
    reads = [whole[at : at + READ_BYTES] for at in range(0, len(whole), READ_BYTES)]
    return {f"{READ_BYTES // 1024} KB": reads, "event": events}


def installed(readers: Iterable[Callable[[], T]]) -> Iterator[T]:
    """Yield the readers that are installed, and print why the others are left out."""
    for reader in readers:
        try:
            yield reader()
        except ImportError as error:
            print(f"bench.framing: a reader is left out: {error}", file=sys.stderr)


def tasks(framing: str) -> list[list[Task]]:
    """Return the readers in groups that do the same work; the first of each group is ours."""
    if framing == "sse":
        readers = installed(peers_sse.READERS)
        return [[Task(one.name, "events", _events_of(one), _data_of(one)) for one in readers]]
    groups: dict[str, list[Task]] = {}
    for peer in installed(peers_ndjson.READERS):
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
    """Return the text of a line, also where the reader has parsed it."""
    content = getattr(line, "data", line)
    return json.dumps(content) if isinstance(content, dict) else content.removesuffix("\n")


def timed(group: list[Task], chunks: list[bytes], expected: list[str], rounds: int) -> dict[str, float]:
    """Return the CPU seconds of each reader, the least of its rounds; raises ValueError where one reads wrongly."""
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
    """Return a row for each reader, framing, size and cut."""
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
    """Return by reader, then by rule, whether the reader keeps the rule."""
    with redirect_stdout(io.StringIO()):
        return {reader.name: rules.verdicts(reader) for reader in installed(peers_sse.READERS)}


def table(rows: list[Row], verdicts: dict[str, dict[str, rules.Verdict]]) -> Iterator[str]:
    """Yield the lines of two tables: microseconds of CPU an event with the ratio to ours, and the rules."""
    columns = list(dict.fromkeys((row.event_bytes, row.chunks) for row in rows))
    for framing in ("sse", "ndjson"):
        heads = " | ".join(f"{event_bytes:,} B, {chunks}" for event_bytes, chunks in columns)
        yield f"| {framing}: CPU µs an event (ratio) | work | {heads} |"
        yield "|---" * (len(columns) + 2) + "|"
        cells: dict[tuple[str, str], list[str]] = {}
        for row in rows:
            if row.framing == framing:
                cells.setdefault((row.work, row.reader), []).append(f"{row.cpu_us:.2f} ({row.ratio:.1f})")
        for (work, reader), row_cells in cells.items():
            yield f"| {reader} | {work} | " + " | ".join(row_cells) + " |"
        yield ""
    yield f"| rules of SSE | {' | '.join(rules.NAMES)} |"
    yield "|---" * (len(rules.NAMES) + 1) + "|"
    for reader, of_reader in verdicts.items():
        yield f"| {reader} | " + " | ".join(of_reader[name] for name in rules.NAMES) + " |"


def behind(rows: list[Row]) -> list[Row]:
    """Return the rows of readers that are faster than ours."""
    return [row for row in rows if row.ratio < 1]


def main(argv: list[str] | None = None) -> int:
    """Print the figures and return 0; readers that are ahead of ours are listed on standard error."""
    asked = options(
        argv, __doc__, rounds=(ROUNDS, "how often each reads; the least counts"),
        here=(False, "install nothing: compare with what this Python has"),
    )  # fmt: skip
    if not asked.here:
        more = sys.argv[1:] if argv is None else argv
        again = [str(python_of("framing", LOCK)), "-m", "bench.framing", "--here", *more]
        return subprocess.run(again, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False).returncode
    logging.disable()  # the readers' logs are not part of the comparison
    warnings.simplefilter("ignore")
    rows, verdicts = measure(rounds=asked.rounds), kept()
    for row in behind(rows):
        say(__doc__, f"behind {row.reader}: {row}")
    shown = [row._asdict() | {"ratio": round(row.ratio, 2)} for row in rows]
    return show(asked, {"rows": shown, "rules": verdicts}, table(rows, verdicts))


if __name__ == "__main__":
    sys.exit(main())
