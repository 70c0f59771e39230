"""Installs what `make setup` needs, a line for each step: `install.py python VENV` or `install.py node`.

It runs before anything is installed, so it needs the standard library alone. pip and npm try for minutes by themselves
where no registry answers. Invariant: without a network it ends within seconds, with one sentence and exit status 2.
Apache Velocity, which one test needs, may have no wheel for the platform; then it prints that and continues.
"""

import re
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# The beginnings of a program's lines that count as one more package.
_PROGRESS = re.compile(r"^(?:Collecting|Installing collected|npm http fetch GET 200)")
_NO_NETWORK = re.compile(
    r"Failed to establish|NewConnectionError|name resolution|Connection refused|timed out|unreachable"
    r"|ENOTFOUND|ECONNREFUSED|EAI_AGAIN|ETIMEDOUT|ENETUNREACH|ECONNRESET|proxy"
)
_REASON = re.compile(r"^(?:ERROR: |npm (?:error|ERR!) (?!code|A complete log|errno|path|syscall))(.+)", re.MULTILINE)
_NO_WHEEL = re.compile(r"No matching distribution found")
_ENOUGH = 3
PIPS = 2
"""How many share the packages."""
# Nothing is compiled now: a module is compiled when it is first imported, and of most packages few modules are.
_PIP = [
    *("-m", "pip", "--disable-pip-version-check", "--no-input", "--retries", "1", "--timeout", "10"),
    *("install", "--no-compile"),
]
_NPM = ["--fetch-retries=1", "--fetch-retry-mintimeout=500", "--fetch-retry-maxtimeout=2000", "--fetch-timeout=60000"]


class Progress:
    """The number of packages that the programs of a step have reached, shown on a terminal."""

    def __init__(self, is_shown: bool) -> None:
        self.count = 0
        self._is_shown = is_shown
        self._started_s = time.monotonic()
        self._lock = threading.Lock()

    def add(self, line: str) -> None:
        """Counts a line that one of the programs has printed."""
        with self._lock:
            self.count += bool(_PROGRESS.match(line))
            if self._is_shown:
                count = f"{self.count} package{'' if self.count == 1 else 's'}"
                print(f"\r  {count}, {time.monotonic() - self._started_s:.0f} s ", end="", flush=True)

    def clear(self) -> None:
        """Removes the progress from the terminal."""
        if self._is_shown:
            print("\r\x1b[K", end="", flush=True)


def run_step(number: int, what: str, *stages: list[list[str]], without: str = "") -> None:
    """Runs one step of six and shows it; ends the process with one sentence if it fails.

    The commands of a stage run beside each other, the stages one after the other. If the platform has no wheel and
    `without` names what is lost by that, it prints this and continues.
    """
    print(f"setup {number}/6: {what}", flush=True)
    # npm runs beside pip, and a line of the terminal can count for only one of them.
    progress = Progress(sys.stdout.isatty() and number < 6)
    for commands in stages:
        with ThreadPoolExecutor(PIPS) as threads:
            ends = list(threads.map(lambda command: _run(command, progress), commands))
        for status, output in ends:
            if status:
                progress.clear()
            if status and without and _NO_WHEEL.search(output) and not _NO_NETWORK.search(output):
                print(f"  left out, for this platform has no wheel of it: {without}", flush=True)
            elif status:
                sys.exit(_report_failure(what, output))
    progress.clear()


def _run(command: list[str], progress: Progress) -> tuple[int, str]:
    """Returns the exit status and what the command printed, but the lines of its progress."""
    lines: list[str] = []
    try:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as problem:
        return 2, str(problem)
    refused = 0
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            progress.add(line)
            # A package's name, such as proxy-addr, says nothing of the network.
            lines += [] if _PROGRESS.match(line) else [line]
            refused += bool(_NO_NETWORK.search(line))
            if refused == _ENOUGH and not progress.count:
                # npm would try each of its packages in turn.
                process.terminate()
                break
    return process.returncode, "".join(lines)


def split_for_pips(lock: str) -> list[list[str]]:
    """Returns the packages of a lock file as stages, each of the texts that one pip installs.

    pip itself comes first, because this year's pip needs half the processor time of the one in Python 3.11. Most of
    its work is to read the list of all releases of a package and to judge each of them, one after the other.
    """
    packages = [text for text in re.split(r"^(?=[A-Za-z])", lock, flags=re.MULTILINE) if text]
    own = [text for text in packages if text.startswith("pip==")]
    others = [text for text in packages if text not in own]
    return [own, ["".join(others[first::PIPS]) for first in range(min(PIPS, len(others)))]]


def _report_failure(what: str, output: str) -> int:
    reasons = _REASON.findall(output) or output.strip().splitlines()[-1:] or ["it said nothing"]
    reason = " ".join(reasons[0].split())[:300].rstrip(".")
    hint = "no package registry can be reached; is there a network? " if _NO_NETWORK.search(output) else ""
    print(f"make setup: {what}: {hint}({reason})", file=sys.stderr)
    return 2


def main(arguments: list[str]) -> None:
    """Installs one part."""
    if arguments[:1] == ["node"]:
        run_step(
            6, "Node packages (some 450) into node_modules", [["npm", "ci", "--loglevel=http", "--no-progress", *_NPM]]
        )
        return
    venv = Path(arguments[1])
    python = str(venv / "bin" / "python")
    lock = Path("requirements-dev.txt").read_text(encoding="utf-8")
    run_step(1, f"Python environment {venv}", [[sys.executable, "-m", "venv", str(venv)]])
    # The lock files name every package, so pip need not resolve dependencies: that saves a fifth of its work.
    locked_alone = ["--require-hashes", "--no-deps"]
    with tempfile.TemporaryDirectory() as folder:

        def installs(text: str) -> list[str]:
            file = Path(folder, f"{text.partition('==')[0]}.txt")
            file.write_text(text, encoding="utf-8")
            return [python, *_PIP, *locked_alone, "--progress-bar", "off", "-r", str(file)]

        stages = [[installs(text) for text in stage] for stage in split_for_pips(lock)]
        run_step(2, f"{lock.count('==')} Python packages into {venv}", *stages)
    # Java's classes do not depend on the Python that the package names.
    velocity = [*locked_alone, "--only-binary=:all:", "--ignore-requires-python", "-rrequirements-velocity.txt"]
    lost = "tests/deploy/test_mapping_templates.py will fail"
    run_step(3, f"Apache Velocity and a Java, for one test, into {venv}", [[python, *_PIP, *velocity]], without=lost)
    durable = [*locked_alone, "-rrequirements-durable.txt"]
    run_step(4, f"durable functions, for one comparison, into {venv}", [[python, *_PIP, *durable]])
    own = ["--no-deps", "--no-build-isolation", "--editable", "./states-language", "--editable", "."]
    run_step(5, f"this project into {venv}", [[python, *_PIP, *own]])


if __name__ == "__main__":
    main(sys.argv[1:])
