"""Lists the streams that are measured, and writes their profiles.

They are each machine with each overlap policy, and ours with reconnection in place and with a hot standby. The profiles
are those of the demonstration streams, with a field changed. Invariant: each row has a stream of its own at the
upstream.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

CONNECTIONS, STAGGERED = "connections", "staggered"


@dataclass(frozen=True)
class Stream:
    """One row: a machine, the upstream's overlap policy, and the profile."""

    machine: str
    policy: str
    profile: str
    upstream: str
    name: str

    @property
    def stream_id(self) -> str:
        """The name of the stream in the product."""
        return f"{self.profile}:{self.name}"

    @property
    def upstream_id(self) -> str:
        """The name of the stream at its upstream."""
        return f"{self.upstream}:{self.name}"


_POLICIES = {"evicts": "demo", "tolerates": "demo-ndjson", "forbids": "demo-exclusive"}
# A profile of the benchmark's own: the upstream that tolerates an overlap, with reconnection in place.
_RECONNECTS = "demo-reconnects"
_BESIDES = {"reconnects": _RECONNECTS, "hot standby": "demo-standby"}

STREAMS = (
    *(Stream(CONNECTIONS, policy, profile, profile, CONNECTIONS) for policy, profile in _POLICIES.items()),
    *(Stream(CONNECTIONS, words, profile, f"demo-ndjson:{profile}", "bench") for words, profile in _BESIDES.items()),
    *(Stream(STAGGERED, policy, profile, profile, STAGGERED) for policy, profile in _POLICIES.items()),
)


def write_profiles(source: Path, folder: Path) -> None:
    """Fill `folder` with the profiles of STREAMS, made from the demonstration profiles in `source`."""
    folder.mkdir()
    for profile in (*_POLICIES.values(), "demo-standby"):
        shutil.copy(source / f"{profile}.toml", folder)
    changed = (source / "demo-ndjson.toml").read_text().replace("/{streamId}", "/demo-ndjson:{streamId}")
    (folder / f"{_RECONNECTS}.toml").write_text(f"reconnect_tries = 5\n{changed}")
