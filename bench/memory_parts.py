"""Bounds a process's share of a core, makes TLS for 127.0.0.1, and spells texts as on the wire.

Invariant: a share ends with its block, and nothing of it is left.
"""

import contextlib
import os
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import yaml

from handlers.framing.decoders import FRAMINGS, Framing
from local.checkout import ROOT

# How each framing delimits a text; `raw` by the chunks of the transfer coding, in which all of them are sent.
FRAMES: dict[str, Callable[[int, str], str]] = {
    "sse": lambda number, text: f"id: {number}\ndata: {text}\n\n",
    "ndjson": lambda _number, text: f"{text}\n",
    "json-seq": lambda _number, text: f"\x1e{text}\n",
    "length": lambda _number, text: f"{len(text)}\r\n{text}",
    "raw": lambda _number, text: text,
}
# Lambda: "at 1,769 MB, a function has the equivalent of one vCPU".
MB_PER_CORE = 1769
PERIOD_US = 100_000
CGROUP = Path("/sys/fs/cgroup/cpu")


def content_type(framing: str) -> str:
    """Return what a body of the framing is called in its Content-Type."""
    return FRAMINGS[cast(Framing, framing)].accept.partition(",")[0]


def certificate(folder: Path) -> tuple[ssl.SSLContext, Path, Path]:
    """Return TLS for 127.0.0.1, its key and certificate in one file, and all authorities with it in another."""
    key, shown = folder / "key.pem", folder / "certificate.pem"
    usage = "keyUsage=critical,digitalSignature,keyCertSign"
    extensions = ("subjectAltName=IP:127.0.0.1", "basicConstraints=critical,CA:TRUE", usage)
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "1", "-subj", "/CN=127.0.0.1", "-keyout", str(key), "-out", str(shown)]
    command += [part for extension in extensions for part in ("-addext", extension)]
    subprocess.run(command, check=True, capture_output=True)
    both, trusted = folder / "both.pem", folder / "trusted.pem"
    both.write_text(key.read_text() + shown.read_text())
    authorities = ssl.get_default_verify_paths().cafile
    trusted.write_text((Path(authorities).read_text() if authorities else "") + shown.read_text())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    return context, both, trusted


def deployed() -> dict[str, str]:
    """Return the function's environment as serverless.yml has it."""
    text = (ROOT / "serverless.yml").read_text(encoding="utf-8").replace("!", "")
    variables: dict[str, str] = yaml.safe_load(text)["functions"]["connectionManager"]["environment"]
    return variables


@contextlib.contextmanager
def share(memory_mb: int) -> Iterator[Path | None]:
    """Yield the file that takes the process which may use a core as a function of so many MB may; None for no limit."""
    if not memory_mb:
        yield None
        return
    group = CGROUP / f"bench-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text(f"{PERIOD_US}")
        (group / "cpu.cfs_quota_us").write_text(f"{PERIOD_US * memory_mb // MB_PER_CORE}")
        yield group / "cgroup.procs"
    finally:
        group.rmdir()
