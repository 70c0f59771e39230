"""`python -m bench.framing`: measures our decoders of SSE, NDJSON and WebSocket beside the readers on PyPI, in one run.

For each reader it reports the CPU time per event, the ratio to ours for the same work, and for SSE which rules it
keeps. The readers are not dependencies of the product: they are installed from bench/requirements.txt into a separate
environment, in which the benchmark runs. Invariant: a reader is timed only on input that it reads correctly, and in
turns with the others.
"""

import io
import json
import logging
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout

from bench import readers, rules
from bench.harness import Row, parse_options, python_of, say, show
from bench.readers import OURS, Reader
from handlers.framing.websocket import TEXT, encoded_frame
from local.checkout import ROOT

READERS = {"sse": readers.SSE, "ndjson": readers.NDJSON, "websocket": readers.WEBSOCKET}
SIZES = (100, 10_000)
READ_BYTES = 16_384
WIRE_BYTES = 2_000_000
ROUNDS = 7
LOCK = ROOT / "bench" / "requirements.txt"


def text(number: int, event_bytes: int) -> str:
    """Return the JSON of an event, `event_bytes` long."""
    head = json.dumps({"number": number, "text": ""})
    return f"{head[:-2]}{'x' * (event_bytes - len(head))}{head[-2:]}"


def cut_like_socket_and_by_event(framing: str, texts: list[str]) -> dict[str, list[bytes]]:
    """Return the bytes of the events in two cuts: as a socket reads them, and one event per read."""
    if framing == "websocket":
        return cuts([encoded_frame(TEXT, one.encode()) for one in texts])
    pattern = "event: update\nid: {}\ndata: {}\n\n" if framing == "sse" else "{1}\n"
    return cuts([pattern.format(number, one).encode() for number, one in enumerate(texts)])


def cuts(events: list[bytes]) -> dict[str, list[bytes]]:
    """Return the events cut as a socket reads them, and one event per read."""
    whole = b"".join(events)
    reads = [whole[at : at + READ_BYTES] for at in range(0, len(whole), READ_BYTES)]
    return {f"{READ_BYTES // 1024} KB": reads, "event": events}


def find_installed_readers(framing: str) -> Iterator[Reader]:
    """Yield the installed readers, and print why the others are left out."""
    for reader in READERS[framing]:
        try:
            list(reader.read(next(iter(cut_like_socket_and_by_event(framing, ["1"]).values()))).events)
        except ImportError as error:
            say(__doc__, f"a reader is left out: {error}")
        else:
            yield reader


def group_by_work(framing: str) -> list[list[Reader]]:
    """Return the readers that do the same work together; the first of each group is ours."""
    by_work: dict[str, list[Reader]] = {}
    for reader in find_installed_readers(framing):
        by_work.setdefault(reader.work, []).append(reader)
    return [group for group in by_work.values() if len(group) > 1]


def time_readers(group: list[Reader], chunks: list[bytes], expected: list[str], rounds: int) -> dict[str, float]:
    """Return the CPU seconds of each reader, the least of its rounds; raises ValueError if one reads wrongly."""
    least: dict[str, float] = {}
    for turn in range(rounds):
        for reader in group:
            with redirect_stdout(io.StringIO()):
                if not turn and [reader.parts(one)[0] for one in reader.read(chunks).events] != expected:
                    raise ValueError(f"{reader.name} does not read what was sent")
                begun_s = time.process_time()
                for _ in reader.read(chunks).events:
                    pass
                took_s = time.process_time() - begun_s
            least[reader.name] = min(least.get(reader.name, took_s), took_s)
    return least


def measure(wire_bytes: int = WIRE_BYTES, rounds: int = ROUNDS) -> list[Row]:
    """Return a row for each reader, framing, size and cut; `ratio` is how many times faster ours is."""
    rows: list[Row] = []
    for framing in READERS:
        for group in group_by_work(framing):
            for event_bytes in SIZES:
                texts = [text(number, event_bytes) for number in range(max(wire_bytes // event_bytes, 2))]
                for cut, chunks in cut_like_socket_and_by_event(framing, texts).items():
                    least = time_readers(group, chunks, texts, rounds)
                    wire = {"framing": framing, "work": group[0].work, "event_bytes": event_bytes, "chunks": cut}
                    rows += [
                        {"reader": name, "cpu_us": round(took_s / len(texts) * 1e6, 3)}
                        | wire
                        | {"ratio": round(took_s / least[OURS], 2)}
                        for name, took_s in least.items()
                    ]
    return rows


def main(argv: list[str] | None = None) -> int:
    """Print the figures and return 0; readers that are ahead of ours are listed on standard error."""
    asked = parse_options(
        argv,
        __doc__,
        rounds=(ROUNDS, "how often each reads; the least counts"),
        here=(False, "install nothing: compare with what this Python has"),
    )
    if not asked.here:
        more = sys.argv[1:] if argv is None else argv
        again = [str(python_of("framing", LOCK)), "-m", "bench.framing", "--here", *more]
        return subprocess.run(again, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False).returncode
    logging.disable()  # the readers' logs are no part of the comparison
    warnings.simplefilter("ignore")
    rows = measure(rounds=asked.rounds)
    with redirect_stdout(io.StringIO()):
        kept = [{"reader": reader.name} | rules.verdicts(reader) for reader in find_installed_readers("sse")]
    for row in rows:
        if row["ratio"] < 1:
            say(__doc__, {"behind": row["reader"]} | row)
    return show(asked, {"rows": rows, "rules": kept})


if __name__ == "__main__":
    sys.exit(main())
