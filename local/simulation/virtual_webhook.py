"""The webhook that a run delivers to, in memory, which checks signatures by the words of Standard Webhooks.

Invariants: an event is taken at most once a request; what a server refuses is in no `arrived`.
"""

import base64
import hmac
import json

from urllib3 import exceptions

from handlers.profile.behaviour import UpstreamRequest
from handlers.upstream.opening import RedirectRefused
from local.simulation.virtual_sinks import QUICK_MS, SLOW_MS, VirtualSinks

SECRET = "whsec_c3RyZWFta2VlcGVyLWNoYW9z"  # of no server
LABEL = "webhook:hook.invalid"
# "the sender's timestamp … within an allowable tolerance"
TOLERANCE_S = 300
FINAL, PASSING, REDIRECT = (400, 413, 422), (401, 404, 429, 500, 503), 307


class VirtualWebhook:
    """The server behind `address`."""

    def __init__(self, sinks: VirtualSinks) -> None:
        self._sinks = sinks
        self._names: dict[str, tuple[str, str]] = {}  # of each id the event

    def post(self, request: UpstreamRequest) -> int:
        """The status of the answer; raises what the client of a real server does."""
        sinks, text = self._sinks, request.body or b""
        sinks.now_ms += SLOW_MS if sinks.holds("slow sink") else QUICK_MS
        sinks.step()
        if sinks.holds("away"):
            raise exceptions.ConnectTimeoutError("nobody answers")
        if problem := self._problem(request, text):
            sinks.misused.append(f"{LABEL}: {problem}")
            return 401
        if sinks.is_poison(text):
            return sinks.drawn(FINAL)
        if sinks.holds("part", 4):
            status = sinks.drawn((*PASSING, REDIRECT))
            if status == REDIRECT:
                raise RedirectRefused("the upstream redirected more than 0 times")
            return status
        sinks.arrived.append((LABEL, json.loads(text)))
        sinks.step()
        if sinks.holds("no answers", 4):
            raise exceptions.TimeoutError("the answer is lost")
        return 204

    def _problem(self, request: UpstreamRequest, text: bytes) -> str:
        """Why a receiver would not trust the request, "" where it does."""
        headers = {name: value.decode() for name, value in request.headers.items()}
        id_, at_s = headers["webhook-id"], headers["webhook-timestamp"]
        # "msg_id.timestamp.payload", with the secret behind its prefix in Base64.
        key = base64.b64decode(SECRET.removeprefix("whsec_"))
        expected = base64.b64encode(hmac.digest(key, b".".join((id_.encode(), at_s.encode(), text)), "sha256"))
        if not hmac.compare_digest(headers["webhook-signature"], f"v1,{expected.decode()}"):
            return "a signature is wrong"
        if abs(self._sinks.now_ms // 1000 - int(at_s)) > TOLERANCE_S:
            return "a timestamp is too old"
        event = json.loads(text)
        name = event["stream"], event["key"]
        if self._names.setdefault(id_, name) != name:
            return f"the event {name} came under the id of {self._names[id_]}"
        return ""
