"""A second opinion: moto answers what each sink of AWS's sends as the embedded AWS does."""

from typing import Any

import pytest
from moto import mock_aws

from handlers.deliver import known_sinks
from handlers.deliver.contract import Tools
from handlers.deliver.table_records import messages
from tests.handlers.deliver import rigs
from tests.handlers.deliver.records import NOW_MS, event, item_record


# Without lambda, which moto runs in containers alone, and the webhook, which is no service.
@pytest.mark.parametrize("kind", ["sqs", "eventbridge", "kinesis", "firehose", "s3"])
def test_moto_takes_what_is_sent(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each event of two arrives, and none is refused."""
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with mock_aws():
        target, received = rigs.AWS_RIGS[kind](None, f"second-{kind}")
        clients: dict[str, Any] = {}

        def client(service: str) -> Any:
            return clients.setdefault(service, rigs.client(service, None))

        _, send = known_sinks.sending(target, Tools(client, str, lambda: NOW_MS))
        batch = [messages(item_record("rig:a", event(key), n), n)[0] for n, key in enumerate("12")]
        assert send(batch) == {}
        assert sorted(one["key"] for one in received()) == ["1", "2"]
