"""`python -m states_language.scheduling.fork_server FD`: forks evaluators, one for each socket that it is sent.

A Python that begins anew imports for half a second; a fork of this one, which has imported everything, answers after
some milliseconds. And who asks does not fork: a process with much memory and many threads would stop for that.

A packet with a socket is a request for an evaluator that serves it; a packet with a number ends the evaluator of this
process id. Invariant: it ends with its socket, and no evaluator outlives it.
"""

import contextlib
import gc
import os
import signal
import socket
import sys

from states_language.scheduling import evaluator

PACKET_BYTES = 64


class ForkServer:
    """The evaluators that were forked and have not been seen to end."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._children: set[int] = set()

    def serve(self) -> None:
        """Answer requests until their socket ends, then end the evaluators."""
        while True:
            packet, sockets, _, _ = socket.recv_fds(self._requests, PACKET_BYTES, 1)
            # One that has ended keeps its process id until here, so no number means another process.
            self._children = {child for child in self._children if os.waitpid(child, os.WNOHANG)[0] == 0}
            if not packet:
                break
            for served in sockets:
                self._fork(served)
            if not sockets:
                self._end(int(packet))
        for child in list(self._children):
            self._end(child)
            os.waitpid(child, 0)

    def _fork(self, served: int) -> None:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                self._requests.close()
                with contextlib.suppress(OSError, EOFError):
                    evaluator.serve(socket.socket(fileno=served))
                    status = 0
            finally:
                os._exit(status)
        os.close(served)
        self._children.add(child)

    def _end(self, child: int) -> None:
        if child in self._children:
            os.kill(child, signal.SIGKILL)


def main() -> None:
    """Serve the socket whose number is the argument."""
    gc.freeze()
    ForkServer(socket.socket(fileno=int(sys.argv[1]))).serve()


if __name__ == "__main__":
    main()
