"""Serves the played providers from a thread, and points a profile at its player.

Invariant: only scheme, host, port and the permission to connect to this machine change; the request says what it would
say to the provider itself.
"""

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from urllib.parse import urlsplit, urlunsplit

from handlers.profile.behaviour import Profile
from local.listener import HOST, Listener, bind
from local.upstreams.behaviours import BEHAVIOURS, Behaviour
from local.upstreams.demo_streams import Upstreams


def moved(profile: Profile, origin: str) -> Profile:
    """Returns the profile at the player of its name; `origin` is http://host:port."""
    base, parts = urlsplit(origin), urlsplit(profile.address)
    address = urlunsplit((base.scheme, base.netloc, f"/{profile.name}{parts.path}", parts.query, ""))
    return replace(profile, address=address, allow_private=True)


@contextlib.contextmanager
def playing(behaviours: Mapping[str, Behaviour] = BEHAVIOURS) -> Iterator[tuple[str, Upstreams]]:
    """Serves the providers from a thread; yields the origin and the upstreams, which count the connections."""
    loop = asyncio.new_event_loop()
    listening = bind(0, "the played providers")
    upstreams = Upstreams(lambda client: listener.reset(client), behaviours=behaviours)
    listener = Listener(upstreams.app, listening)
    thread = threading.Thread(target=loop.run_forever, name="played providers", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(listener.start(), loop).result()
        yield f"http://{HOST}:{listener.port}", upstreams
    finally:
        asyncio.run_coroutine_threadsafe(_closed(upstreams, listener), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _closed(upstreams: Upstreams, listener: Listener) -> None:
    upstreams.close()
    await listener.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
