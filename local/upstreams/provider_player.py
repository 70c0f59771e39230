"""Plays the providers on this machine: serves them from a thread, and points profiles to them."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from handlers.profile.behaviour import Profile
from local.listener import HOST, Listener, bind
from local.upstreams.behaviours import BEHAVIOURS, Behaviour
from local.upstreams.demo_streams import Upstreams


def point_to_player(profile: Profile, origin: str) -> Profile:
    """Returns the profile with the addresses of its played provider; `origin` is http://host:port."""
    base = urlsplit(origin)

    def here(address: str, scheme: str) -> str:
        parts = urlsplit(address)
        return urlunsplit((scheme, base.netloc, f"/{profile.name}{parts.path}", parts.query, ""))

    ticket = profile.ticket and replace(profile.ticket, address=here(profile.ticket.address, base.scheme))
    address = here(profile.address, "ws" if profile.is_socket else base.scheme)
    return replace(profile, address=address, ticket=ticket, allow_private=True)


@contextlib.contextmanager
def serve_providers(behaviours: Mapping[str, Behaviour] = BEHAVIOURS, **more: Any) -> Iterator[tuple[str, Upstreams]]:
    """Serves the providers from a thread; yields the origin and the upstreams, which count the connections.

    `more` are further arguments of `Upstreams`.
    """
    loop = asyncio.new_event_loop()
    listening = bind(0, "the played providers")
    upstreams = Upstreams(lambda client: listener.reset(client), behaviours=behaviours, **more)
    listener = Listener(upstreams.app, listening, has_sockets=True)
    thread = threading.Thread(target=loop.run_forever, name="played providers", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(listener.start(), loop).result()
        yield f"http://{HOST}:{listener.port}", upstreams
    finally:
        asyncio.run_coroutine_threadsafe(_close(upstreams, listener), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _close(upstreams: Upstreams, listener: Listener) -> None:
    upstreams.close()
    await listener.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
