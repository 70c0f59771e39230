"""Answers jobs that come through a socket, in a process of its own, and forks such processes.

    {"expression": "1 + 1", "states": {}, "variables": {}, "location": "Output"}  # {"value": 2}
    {"path": "$..a", "root": {"a": 1}}                                            # {"value": [1]}
    {"function": "States.ArrayUnique", "arguments": [[1, 1]]}                     # {"value": [1]}

A refusal is {"failure": its message}, with the location of an expression. Invariants: an evaluator ends when its socket
closes; one job cannot use more memory than MOST_BYTES.

`python -m states_language.scheduling.evaluator FD` is a fork server: it forks an evaluator for each socket that it
receives. A new Python would import for half a second; a fork answers after some milliseconds. The calling process does
not fork itself, because a fork stops a process with much memory and many threads for a while. A packet with a socket
requests an evaluator that serves this socket; a packet with a process id ends that evaluator. The fork server ends when
its own socket closes, and no evaluator outlives it.
"""

import contextlib
import functools
import gc
import marshal
import os
import resource
import signal
import socket
import sys
from typing import Any

from states_language.clock import RealClock
from states_language.context import ComposedEnvironment
from states_language.failures import EvaluationError, QueryFailure
from states_language.jsonata.bounds import TOO_LARGE
from states_language.jsonata.evaluation import ExpressionFrame, Query, compile_query
from states_language.jsonata.functions import functions_frame
from states_language.jsonpath.grammar import compile_path
from states_language.jsonpath.intrinsic_functions import FUNCTIONS
from states_language.scheduling.lanes import Job
from states_language.values import MISSING

MOST_BYTES = 2 << 30
LENGTH_BYTES = 8
_NICENESS = 5


_CLOCK = RealClock()


@functools.cache
def _functions_frame() -> Any:
    return functions_frame(_CLOCK.now_ms, _CLOCK.random)


@functools.lru_cache(maxsize=64)
def _compiled_query(text: str, location: str) -> Query:
    return compile_query("{%" + text + "%}", "/", in_catcher=location.startswith("Catch["))


def answer_job(job: Job) -> Job:
    try:
        if "expression" in job:
            return _evaluate(job)
        if "path" in job:
            return {"value": compile_path(job["path"]).read_from_root(job["root"])}
        return {"value": FUNCTIONS[job["function"]].apply(job["arguments"], _CLOCK.random)}
    except (EvaluationError, ValueError, OverflowError) as refusal:
        return {"failure": str(refusal)}
    except RecursionError:
        return {"nested": True}


def _evaluate(job: Job) -> Job:
    query, location = _compiled_query(job["expression"], job["location"]), job["location"]
    try:
        variables = job["variables"]
        # $states has the Context Object if the expression reads it.
        here = ComposedEnvironment(dict, lambda name: variables.get(name, MISSING), _functions_frame, _CLOCK.random)
        return {"value": query.evaluate(ExpressionFrame(job["states"], here), location)}
    except MemoryError:
        return {"failure": str(query.bound_failure(TOO_LARGE, location)), "location": location}
    except QueryFailure as failure:
        return {"failure": str(failure), "location": failure.location}


def pack(message: Job) -> bytes:
    """Return a message as its length and its value, for a fifth of the work of writing JSON.

    Raises RecursionError for a value that is nested too deeply.
    """
    try:
        body = marshal.dumps(message)
    except ValueError:
        raise RecursionError from None
    return len(body).to_bytes(LENGTH_BYTES) + body


def unpack(body: bytes) -> Job:
    """Return the message of this packed value."""
    message: Job = marshal.loads(body)
    return message


def serve_jobs(served: socket.socket) -> None:
    """Send the id of this process, then answer jobs until the socket closes."""
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    with served.makefile("rwb") as stream:
        stream.write(pack({"process": os.getpid()}))
        stream.flush()
        while length := stream.read(LENGTH_BYTES):
            job = unpack(stream.read(int.from_bytes(length)))
            try:
                message = pack(answer_job(job))
            except RecursionError:
                message = pack({"nested": True})
            stream.write(message)
            stream.flush()


PACKET_BYTES = 64


class ForkServer:
    """The forked evaluators that have not been reaped."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._children: set[int] = set()

    def serve(self) -> None:
        """Answer requests until the socket closes, then end the evaluators."""
        while True:
            packet, sockets, _, _ = socket.recv_fds(self._requests, PACKET_BYTES, 1)
            # A process that has ended keeps its id until it is waited for here, so no id can mean another process.
            self._children = {child for child in self._children if os.waitpid(child, os.WNOHANG)[0] == 0}
            if not packet:
                break
            for served in sockets:
                self._fork(served)
            if not sockets:
                self._kill(int(packet))
        for child in list(self._children):
            self._kill(child)
            os.waitpid(child, 0)

    def _fork(self, served: int) -> None:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                self._requests.close()
                with contextlib.suppress(OSError, EOFError):
                    serve_jobs(socket.socket(fileno=served))
                    status = 0
            finally:
                os._exit(status)
        os.close(served)
        self._children.add(child)

    def _kill(self, child: int) -> None:
        if child in self._children:
            os.kill(child, signal.SIGKILL)


def main() -> None:
    """Serve the socket whose number is the argument."""
    gc.freeze()
    ForkServer(socket.socket(fileno=int(sys.argv[1]))).serve()


if __name__ == "__main__":
    main()
