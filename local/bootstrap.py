"""Ties a child process to the local service: the child ends when its parent ends.

`python -m local.bootstrap` runs AWS's runtime client for one Lambda sandbox; `python -m local.bootstrap --exec PID
PROGRAM ARGUMENT…` becomes any other program. Invariant: no child outlives its parent, not even if the parent is killed
with SIGKILL while the child is busy.
"""

import ctypes
import os
import signal
import sys
import threading
import time

PARENT_VARIABLE = "STREAMKEEPER_PARENT_PID"
_PR_SET_PDEATHSIG = 1
_WATCH_EVERY_S = 0.25


def die_with_parent(death_signal: signal.Signals, parent_pid: int) -> None:
    """Sends `death_signal` to this process when its parent ends, even if it ended before the call.

    Linux has prctl(2) for this; elsewhere a thread checks four times a second.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
        # prctl(2): a parent that died before the call sends no signal, so check once after it.
        if os.getppid() != parent_pid:
            os.kill(os.getpid(), death_signal)
        return
    threading.Thread(target=_watch, args=(death_signal, parent_pid), daemon=True).start()


def _watch(death_signal: signal.Signals, parent_pid: int) -> None:
    while os.getppid() == parent_pid:
        time.sleep(_WATCH_EVERY_S)
    os.kill(os.getpid(), death_signal)


def execute(parent_pid: int, command: list[str]) -> None:
    """Becomes another program that ends with this parent; only Linux keeps the tie across execve(2)."""
    die_with_parent(signal.SIGTERM, parent_pid)
    # setrlimit(2): a file that may not grow further is an error to report, not a reason to die.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    os.execv(command[0], command)


def main() -> None:
    """Runs one Lambda sandbox until it is killed; the address of its Runtime API is in AWS_LAMBDA_RUNTIME_API."""
    die_with_parent(signal.SIGKILL, int(os.environ.pop(PARENT_VARIABLE)))
    # Ctrl-C reaches the whole process group, but only the service decides when a function ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.path.insert(0, os.environ["LAMBDA_TASK_ROOT"])
    from awslambdaric.__main__ import main as runtime_client

    runtime_client(["bootstrap", os.environ["_HANDLER"]])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--exec"]:
        execute(int(sys.argv[2]), sys.argv[3:])
    main()
