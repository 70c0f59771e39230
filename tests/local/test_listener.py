"""A port of the service."""

import asyncio
import socket

import pytest
import urllib3
from starlette.types import Receive, Scope, Send

from local.listener import Listener, bind, port_of
from local.terminal import UserError


def test_an_answer_is_sent_without_waiting_for_an_acknowledgement() -> None:
    """Nagle's algorithm is off for each connection; otherwise the second part of every answer would wait for 40 ms."""
    delays: list[int] = []

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        (connection,) = listener._server.server_state.connections
        transport = getattr(connection, "transport")  # noqa: B009
        delays.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async def run() -> int:
        await listener.start()
        url = f"http://127.0.0.1:{listener.port}/"
        try:
            answer = await asyncio.to_thread(urllib3.request, "GET", url)
            return int(answer.status)
        finally:
            await listener.close()

    listener = Listener(app, bind(0, "a test"))
    assert (asyncio.run(run()), len(delays), all(delays)) == (204, 1, True)


def test_a_stop_amid_a_request_prints_nothing(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A request without an answer at the stop once printed a traceback, and a busy service has dozens."""
    entered = asyncio.Event()

    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        entered.set()
        await asyncio.Event().wait()

    async def run() -> None:
        listener = Listener(app, bind(0, "a test"))
        await listener.start()
        url = f"http://127.0.0.1:{listener.port}/"
        asked = asyncio.create_task(asyncio.to_thread(urllib3.request, "GET", url, retries=False))
        await entered.wait()
        await listener.close()
        assert isinstance((await asyncio.gather(asked, return_exceptions=True))[0], urllib3.exceptions.ProtocolError)

    asyncio.run(run())
    assert (caplog.records, capfd.readouterr()) == ([], ("", ""))


def test_a_taken_port_names_the_setting_that_chooses_another() -> None:
    """The sentence names PORT for a run, and --port for the page that `console` serves."""
    with bind(0, "a test") as taken, pytest.raises(UserError, match=r"in use; stop .* or set --port to another number"):
        bind(port_of(taken), "the page", "--port")
