"""The stream profiles that ship, by name: others in env/streams are somebody's own and change no verdict of the tests.

A new profile that ships is written down here; `tests/handlers/test_providers.py` then asks for its provider.
"""

from pathlib import Path

STREAMS = Path(__file__).resolve().parent.parent / "env" / "streams"
DEMOS = ("demo", "demo-exclusive", "demo-log", "demo-ndjson", "demo-socket", "demo-standby", "demo-token")
PROVIDERS = (
    *("alpaca", "binance", "coinbase", "companies-house", "completions", "couchdb", "etcd", "finnhub", "jetstream"),
    *("kraken", "kubernetes", "mastodon", "mcp", "mercure", "oanda", "okx", "responses", "wikimedia", "x-filtered"),
)
NAMES = (*DEMOS, *PROVIDERS)


def files() -> list[Path]:
    """The files of the profiles that ship, by name."""
    return [STREAMS / f"{name}.toml" for name in sorted(NAMES)]
