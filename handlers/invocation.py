"""Keeps a stream connected for one invocation, in real time: performs what handlers/attempts.py wishes.

It decides nothing; it knows the clock, the store, the secrets and how to make a connection. Invariant: `keep` returns
before the deadline, whatever the store and the upstream do, unless reading a secret takes longer.
"""

import random
import time
from collections.abc import Callable
from typing import Any

from handlers.attempts import ChangeRest, Connect, Pause, ReadLease, ReadRest, ReadSecrets, Wish, attempts
from handlers.aws.secret_values import SecretValues
from handlers.driver import Clock, Driver
from handlers.errors import StreamRejected
from handlers.profile.addresses import ProfileError
from handlers.profile.behaviour import Profile
from handlers.profile.secret_references import Secrets
from handlers.store.connection_store import Store
from handlers.store.requests import Invocation, Report
from handlers.store.worker import Worker

Tell = Callable[[Report], None]


def keep(
    profile: Profile, store: Store, secrets: SecretValues, invocation: Invocation, clock: Clock, tell: Tell
) -> Report:
    """How the last connection ended; `tell` hears of each. Raises what `secrets` raises, and StoreUnavailable."""
    worker = Worker(invocation, clock.now_ms)

    def perform(wish: Wish) -> Any:
        stream_id = invocation.stream_id
        match wish:
            case ReadSecrets(anew):
                return _usable(profile, stream_id, secrets.read(profile.secrets, anew=anew))
            case ReadRest():
                return worker.ask(lambda: store.read_rest(stream_id))
            case ChangeRest(before, after):
                return worker.ask(lambda: store.change_rest(stream_id, before, after, invocation.holder))
            case ReadLease():
                return worker.ask(lambda: store.read_lease(stream_id))
            case Pause(for_ms):
                return time.sleep(for_ms / 1000)
            case Connect(attempt, values):
                report = Driver(profile, store, attempt, clock, values).run()
                tell(report)
                return report

    try:
        wishes = attempts(profile, invocation, clock.now_ms, random.uniform)
        answer = None
        while True:
            answer = perform(wishes.send(answer))
    except StopIteration as ended:
        found: Report = ended.value
        return found
    finally:
        worker.stop()


def _usable(profile: Profile, stream_id: str, values: Secrets) -> Secrets:
    """The values, before anything is claimed for them; raises StreamRejected where no request can carry one."""
    try:
        profile.request(stream_id, None, values)
    except ProfileError as error:
        raise StreamRejected(str(error)) from None
    return values
