"""Debian's nchan in nginx, a server of another project, with server-sent events and with a WebSocket.

apt-get downloads the packages into a folder, and nothing is installed; without apt-get the tests are skipped.
"""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3

from handlers.profile.parse import parse
from tests.handlers.aws import EVENTS, Aws
from tests.handlers.lanes import start_lane
from tests.harness import free_port
from tests.local.support import until

# It shows for two more packages what test_socket_servers.py and test_reader.py show for others.
pytestmark = pytest.mark.long
PACKAGES = ["nginx", "libnginx-mod-nchan"]
CONFIGURATION = """
load_module {root}/usr/lib/nginx/modules/ngx_nchan_module.so;
daemon off; worker_processes 1; pid {run}/pid; error_log {run}/error.log; {user}
events {{ worker_connections 64; }}
http {{
  access_log off;
  client_body_temp_path {run}/body; proxy_temp_path {run}/proxy; fastcgi_temp_path {run}/fastcgi;
  uwsgi_temp_path {run}/uwsgi; scgi_temp_path {run}/scgi;
  nchan_permessage_deflate_compression_level 6;
  server {{
    listen 127.0.0.1:{port};
    location ~ ^/pub/(\\w+)$ {{ nchan_publisher; nchan_channel_id $1; }}
    location ~ ^/sub/(\\w+)$ {{
      nchan_subscriber; nchan_channel_id $1; nchan_subscriber_first_message oldest;
    }}
  }}
}}
"""
USUAL: dict[str, Any] = {"allow_private": True, "key": "$.n", "stall_after_s": 30}
SSE = {"framing": "sse", "resume": {"header": "Last-Event-ID"}, **USUAL}
SOCKET = {"framing": "websocket", "compression": True, "cursor": "$.n", "sequence": "$.n", "resume": "none", **USUAL}


@pytest.fixture(scope="module")
def nchan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the host and port of nginx with nchan."""
    folder = tmp_path_factory.mktemp("nchan")
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        pytest.skip("no apt-get here, which brings Debian's nchan")
    got = subprocess.run(["apt-get", "download", *PACKAGES], cwd=folder, capture_output=True, text=True)
    if got.returncode:
        pytest.skip(f"apt-get brings no nchan here: {got.stderr.strip().splitlines()[-1]}")
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, folder / "root"], check=True)
    run, port = folder / "run", free_port(1)
    run.mkdir()
    user = "user root;" if os.geteuid() == 0 else ""
    configuration = run / "nginx.conf"
    configuration.write_text(CONFIGURATION.format(root=folder / "root", run=run, port=port, user=user))
    # No directive changes this folder of the module: the same number of letters names one below the prefix (-p).
    module = folder / "root/usr/lib/nginx/modules/ngx_nchan_module.so"
    module.write_bytes(module.read_bytes().replace(b"/var/lib/nginx/", b".".ljust(15, b"/")))
    command: list[str | Path] = [folder / "root/usr/sbin/nginx", "-p", run, "-c", configuration, "-e", "error.log"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            assert until(lambda: process.poll() is not None or is_there(f"127.0.0.1:{port}"))
            assert process.returncode is None, (run / "error.log").read_text()
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()


def is_there(address: str) -> bool:
    """Return whether nginx answers at this address."""
    with contextlib.suppress(urllib3.exceptions.HTTPError):
        return urllib3.request("GET", f"http://{address}/", retries=False).status == 404
    return False


def published(address: str, channel: str, *numbers: int) -> None:
    """Publish an event for each number."""
    for number in numbers:
        body = json.dumps({"n": number, "text": "é" * 200})
        answer = urllib3.request("POST", f"http://{address}/pub/{channel}", body=body.encode())
        assert answer.status in (200, 201, 202)


def stored(aws: Aws, stream_id: str) -> list[int]:
    """Return the numbers of the stored events, in order."""
    return sorted(int(key) for key in aws.items(EVENTS, stream_id))


def test_events_published_while_the_stream_was_stopped_are_read_after_the_cursor(aws: Aws, nchan: str) -> None:
    """With server-sent events the stream resumes from nchan's id, and each event is stored once."""
    stream = "sse:events"
    profile = parse("sse", {"address": f"http://{nchan}/sub/{{name}}", **SSE}, {})
    published(nchan, "events", 1, 2, 3)
    lane = start_lane(aws, profile, stream)
    assert until(lambda: stored(aws, stream) == [1, 2, 3])
    aws.stop(stream)
    assert lane.last_report.outcome.status == "stopped"
    published(nchan, "events", 4, 5)
    aws.stop(stream, stop=False)
    lane = start_lane(aws, profile, stream)
    assert until(lambda: stored(aws, stream) == [1, 2, 3, 4, 5])
    published(nchan, "events", 6)
    assert until(lambda: 6 in stored(aws, stream))
    aws.stop(stream)
    assert (
        lane.last_report.outcome.status,
        lane.last_report.progress.stored,
        lane.last_report.progress.duplicates,
    ) == ("stopped", 3, 0)


def test_messages_on_a_socket_are_stored_once_and_a_hole_is_a_loss(aws: Aws, nchan: str) -> None:
    """On a compressed WebSocket nchan begins each connection with its oldest message."""
    stream = "socket:messages"
    profile = parse("socket", {"address": f"ws://{nchan}/sub/{{name}}", **SOCKET}, {})
    published(nchan, "messages", 1, 2, 3)
    lane = start_lane(aws, profile, stream)
    assert until(lambda: stored(aws, stream) == [1, 2, 3])
    published(nchan, "messages", 5)
    assert until(lambda: stored(aws, stream) == [1, 2, 3, 5])
    assert until(lambda: len(aws.losses(stream)) == 1)
    aws.stop(stream)
    assert (lane.last_report.outcome.status, lane.last_report.progress.stored) == ("stopped", 4)
    aws.stop(stream, stop=False)
    lane = start_lane(aws, profile, stream)
    published(nchan, "messages", 6)
    assert until(lambda: stored(aws, stream) == [1, 2, 3, 5, 6])
    aws.stop(stream)
    assert (lane.last_report.progress.stored, lane.last_report.progress.duplicates) == (1, 4)
