"""A process for `test_standstill.py`: reads the upstream at `argv[1]` and prints each arrival as a line of JSON.

A line has the arrival's kind, how long ago it may have come, and how long the oldest unread bytes have waited.
"""

import json
import sys

from handlers.connection.inputs import Closed
from handlers.profile.upstream_requests import UpstreamRequest
from handlers.upstream.reader import Upstream
from handlers.upstream.standstill import Ticker


def main() -> None:
    """Read until the upstream closes, and print each arrival."""
    request = UpstreamRequest("GET", sys.argv[1], {}, allow_private=True)
    with Ticker() as pulse:
        reader = Upstream(request, connect_timeout_s=5, stall_after_s=60, pulse=pulse)
        reader.start()
        while True:
            arrival = reader.get(60)
            kind = arrival.reason if isinstance(arrival, Closed) else type(arrival).__name__
            print(json.dumps([kind, reader.taken_age_s, reader.unread_age_s]), flush=True)
            if isinstance(arrival, Closed):
                return


if __name__ == "__main__":
    main()
