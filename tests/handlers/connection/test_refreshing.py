"""Refresh tokens that the server replaces at each use, with two functions, a table that fails, and kills."""

import contextlib
import json
import random
from typing import Any

import pytest

from handlers.connection.inputs import Closed
from handlers.connection.opening_steps import Answer, Ask, Call, Preparation, Tokens, Try, Unready, replacement_name
from handlers.connection.preparation import USED_UP, prepare_opening
from handlers.profile.secret_references import Reference
from handlers.run.refresh_tokens import RefreshTokens
from local.simulation.tables import MemoryDynamoDB
from local.upstreams.auth_servers import CLIENT, REFRESH, SECRET, PlayedAuth
from tests.examples import examples
from tests.handlers.aws import carry_out, drop_request, lose_answer
from tests.handlers.profile.profiles import profile

ADDRESS = "https://auth.example/token"
PROFILE = profile(
    address="https://example.org/x",
    token={
        "kind": "refresh_token",
        "address": ADDRESS,
        "id": CLIENT,
        "secret": "${secret:key}",
        "refresh_token": "${secret:refresh}",
    },
)
REFUSED = Closed("rejected", f"the token server auth.example answered 400: {USED_UP}")
FOR_EVER_MS = 1 << 60


class Table:
    """The functions' control table; a drawn share of its calls fails, before or after taking effect."""

    def __init__(self, draws: random.Random, share: float) -> None:
        self.memory, self.draws, self.share = MemoryDynamoDB("control"), draws, share

    def __getattr__(self, name: str) -> Any:
        def call(**parameters: Any) -> Any:
            way = self.draws.choice((drop_request, lose_answer)) if self.draws.random() < self.share else carry_out
            return way(getattr(self.memory, name), **parameters)

        return call


class World:
    """The token server, the table, and how many functions were killed between the answer and the write."""

    def __init__(self, draws: random.Random, grace_ms: int, share: float = 0) -> None:
        self.now_ms, self.lost, self.secret = 0, 0, REFRESH
        self.table = Table(draws, share)
        self.stored = RefreshTokens(self.table, "control")
        self.auth = PlayedAuth(lambda: self.now_ms, draws, token_lives_s=1, grace_ms=grace_ms)

    @property
    def newest(self) -> str:
        """Return the refresh token that a function would send now."""
        share, self.table.share = self.table.share, 0
        read = self.stored.read(replacement_name(ADDRESS, CLIENT, self.secret))
        self.table.share = share
        assert not isinstance(read, Closed)
        return self.secret if read is None else read.token


class Function:
    """A process that opens the stream again and again; its token has always expired."""

    def __init__(self, world: World) -> None:
        self.world, self.tokens = world, Tokens(contextlib.nullcontext, world.stored)
        self.ended: list[Closed | None] = []
        self.steps: Preparation | None = None
        self.step: Any = None
        self.got = ""

    def move(self) -> None:
        """Take one step: a table call, a request or the opening; the first step of an opening only begins it."""
        answer: Any = None
        if self.steps is None:
            self.world.now_ms += 2_000
            values = {Reference("secret", "key"): SECRET, Reference("secret", "refresh"): self.world.secret}
            self.steps = prepare_opening(PROFILE, "demo", None, values, self.tokens, lambda: self.world.now_ms)
        elif isinstance(self.step, Call):
            answer = self.step.run()
        elif isinstance(self.step, Ask):
            sent = {name: value.decode() for name, value in self.step.request.headers.items()}
            status, said = self.world.auth.answer_token_request(sent, self.step.request.body or b"")
            self.got = said.get("refresh_token", "")
            answer = Answer(status, {}, json.dumps(said).encode())
        else:
            assert isinstance(self.step, Try)
            answer = 200
        try:
            self.step = self.steps.send(answer)
        except StopIteration:
            self._end(None)
        except Unready as unready:
            self._end(unready.closed)

    def open(self) -> Closed | None:
        """Open once, to its end; return why it could not, else None."""
        before = len(self.ended)
        while len(self.ended) == before:
            self.move()
        return self.ended[-1]

    def is_killed(self) -> "Function":
        """End it as SIGKILL would; return the function that follows."""
        self.world.lost += self.got not in ("", self.world.newest)
        return Function(self.world)

    def _end(self, closed: Closed | None) -> None:
        self.steps = None
        self.ended.append(closed)


@pytest.mark.parametrize("seed", range(examples(200)))
def test_the_newest_refresh_token_survives_failures_and_kills(seed: int) -> None:
    """Only a kill between the server's answer and the write loses the token; a grace period or a new secret helps."""
    draws = random.Random(f"refresh {seed}")
    has_grace, share, kills = seed % 2 == 1, draws.choice((0, 0.3)), draws.choice((0, 0.05))
    world = World(draws, FOR_EVER_MS if has_grace else 0, share)
    functions = [Function(world), Function(world)]
    ended: list[Closed | None] = []
    for _ in range(120):
        at = draws.randrange(2)
        if draws.random() < kills:
            functions[at] = functions[at].is_killed()
        functions[at].move()
        ended += functions[at].ended[-1:] if functions[at].steps is None else []
    said = f"seed {seed}: grace {has_grace}, failures {share}, kills {kills}"
    assert world.lost or any(one is None for one in ended), said
    for closed in ended:
        is_away = closed is not None and closed.reason == "no_token" and "refresh token cannot be" in closed.detail
        assert world.auth.refresh not in repr(closed)
        assert closed is None or (is_away and share) or (closed == REFUSED and not has_grace), said
    # The table answers again: a function stores its unsaved token before its next request, and others send that one.
    world.table.share = 0
    for function in functions * 2:
        function.open()
    last = Function(world).open()
    assert last is None or (last == REFUSED and world.lost and not has_grace), said
    if last is None:
        assert world.newest == world.auth.refresh, said
    else:
        world.secret = world.auth.refresh = "another"
        assert [Function(world).open(), Function(world).open()] == [None, None], said


def test_the_second_of_two_functions_that_refresh_at_once_sends_the_first_ones_token() -> None:
    """If two functions send one token, the second is refused, reads the row again and sends the newer token."""
    world = World(random.Random(1), 0)
    first, second = Function(world), Function(world)
    for function in (first, second):
        function.move()  # its step is the read
        function.move()  # its step is the request
    assert (first.open(), second.open()) == (None, None)
    assert world.newest == world.auth.refresh


def test_a_changed_secret_gets_a_row_of_its_own_whose_key_reveals_nothing() -> None:
    """A changed refresh token gets a row of its own, and the old value keeps its row; a key reveals no token."""
    world = World(random.Random(2), 0)
    function = Function(world)
    assert [function.open(), function.open()] == [None, None]
    before = world.newest
    world.secret = world.auth.refresh = "another"
    assert function.open() is None
    assert world.newest == world.auth.refresh != before
    (old, new) = (replacement_name(ADDRESS, CLIENT, secret) for secret in (REFRESH, "another"))
    assert old != new
    assert REFRESH not in old
    world.secret = REFRESH
    assert world.newest == before
