"""Has the services of AWS that the run does not play itself: tables, queues, the bucket, secrets and the rest.

They are two child processes (`embedded_aws.py`, `embedded_dynamodb.py`), or what the environment leads to in place of
either. Invariants: nothing is asked of a child before it answers; what a function knew of tables that were set back is
forgotten.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import IO, Any

from local.aws_endpoints import Endpoints, needs_dynamodb
from local.checkout import ROOT
from local.service import embedded_dynamodb
from local.service.embedded_aws import EmbeddedAws
from local.service.embedded_dynamodb import EmbeddedDynamoDB
from local.service.provision import provision
from local.stack import Stack


class Backend:
    """That of one run, in the folder `data`; `listening` is the embedded AWS's socket, None where it has none.

    Where a child dies that holds the tables, `on_death` is called, and `on_restart` when another has them. `on_failure`
    takes the sentence of one that cannot be started again, `say` prints a line.
    """

    def __init__(
        self, data: Path, listening: Any, lock_file: IO[str], environment: Mapping[str, str],
        on_death: Callable[[], None], on_restart: Callable[[], Awaitable[None]],
        on_failure: Callable[[str], None], say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._data = data
        self._has_tables = needs_dynamodb(environment)
        self._say = say
        self._aws: EmbeddedAws | None = None
        if listening is not None:
            self._aws = EmbeddedAws(data, listening, lock_file, on_death, on_restart, on_failure, say)
        self._dynamodb: EmbeddedDynamoDB | None = None
        binary = embedded_dynamodb.program(ROOT)
        if binary is not None and self._has_tables:
            self._dynamodb = EmbeddedDynamoDB(data, binary, lock_file, on_failure, say)
        self.endpoints = Endpoints(
            environment,
            self._aws.url if self._aws else None,
            self._dynamodb.url if self._dynamodb else None,
        )

    async def start(self, stack: Stack) -> dict[str, str]:
        """Returns the queues' addresses by name once all that the stack names is there; raises UserError."""
        if self._has_tables:
            for line in embedded_dynamodb.elsewhere(self._data, is_embedded=self._dynamodb is not None):
                self._say(line)
        for child in (self._aws, self._dynamodb):
            if child is not None:
                await child.start()
        return await asyncio.to_thread(self.provision, stack)

    def provision(self, stack: Stack) -> dict[str, str]:
        """Returns the queues' addresses by name, once what was missing of the stack is made; raises UserError."""
        return provision(self.endpoints, stack.tables, stack.queues, stack.buckets)

    async def stop(self) -> None:
        """Returns when every child has ended."""
        for child in (self._dynamodb, self._aws):
            if child is not None:
                await child.stop()

    @property
    def loses_writes(self) -> bool:
        """Whether it is the embedded AWS that has the tables: what it restores is older than what functions know."""
        return self._dynamodb is None

    @property
    def keeps_every_write(self) -> bool:
        """Whether a write that was answered survives SIGKILL of anything here; without it, seconds may be lost."""
        return self._dynamodb is not None or not self._has_tables
