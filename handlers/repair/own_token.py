"""Has a repair send the token of its stream: requested as for an opening, held while it lives, and anew after a 401.

The stream's own headers go to the address of its repair where the profile names no others, and the token with them.
Invariant: a problem is one phrase without an address, a header or anything that was received.
"""

import threading
from collections.abc import Callable
from typing import Any

from handlers.connection.opening_steps import Call, Replacements, Tokens, Unready
from handlers.connection.preparation import UNAUTHORIZED, with_token
from handlers.errors import StreamDropped
from handlers.profile.behaviour import Profile
from handlers.profile.secret_references import Secrets
from handlers.profile.upstream_requests import UpstreamRequest
from handlers.repair.fetching import READ_S, fetch
from handlers.repair.pages import Fetched
from handlers.upstream.before_opening import asked


class OwnTokens:
    """The tokens of a process; `now_ms` is its clock, `replacements` shares replaced refresh tokens."""

    def __init__(self, now_ms: Callable[[], int], replacements: Replacements | None = None) -> None:
        self._tokens, self._now_ms = Tokens(threading.Lock(), replacements), now_ms

    def added(self, profile: Profile, secrets: Secrets) -> Secrets:
        """Returns the secrets, and the token where the repair sends it; raises StreamDropped without a valid one."""
        if profile.repair is None or profile.repair.headers is not None:
            return secrets
        steps = with_token(profile, secrets, self._tokens, self._now_ms)
        answer: Any = None
        try:
            while True:
                step = steps.send(answer)
                answer = step.run() if isinstance(step, Call) else asked(step, READ_S, lambda _socket: None)
        except StopIteration as ended:
            found: Secrets = ended.value
            return found
        except Unready as problem:
            raise StreamDropped(problem.closed.detail or problem.closed.reason) from None

    def fetched(self, request: UpstreamRequest) -> Fetched:
        """Returns the answer to a request; after a 401 the next try has another token."""
        answer = fetch(request)
        if answer.status == UNAUTHORIZED:
            self._tokens.forget()
        return answer
