"""The choice of each service's endpoint."""

from pathlib import Path

import pytest

from local.aws_endpoints import Endpoints, needs_dynamodb, needs_embedded, plain_session
from local.listener import bind, port_of
from local.service.command import read_options
from local.terminal import UserError
from states_language.server import requests as request_validation


def test_only_the_sdks_variables_choose_another_endpoint() -> None:
    """AWS_ENDPOINT_URL replaces the embedded AWS, a service's own variable only that service."""
    embedded, own = "http://127.0.0.1:1", "http://127.0.0.1:8000"
    tables = Endpoints({}, embedded, "http://127.0.0.1:2")
    assert [tables.url_of(service) for service in ("dynamodb", "sqs")] == ["http://127.0.0.1:2", embedded]
    assert tables.environment()["AWS_ENDPOINT_URL_DYNAMODB"] == "http://127.0.0.1:2"
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB"):
        assert needs_dynamodb({}) > needs_dynamodb({name: own})
        assert Endpoints({name: own}, embedded).url_of("dynamodb") == own
    alone = Endpoints({"AWS_ACCESS_KEY_ID": "mine", "AWS_PROFILE": "work"}, embedded)
    assert alone.url_of("dynamodb") == embedded
    assert alone.environment()["AWS_ACCESS_KEY_ID"] == "local"
    one = Endpoints({"AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:8000", "AWS_ACCESS_KEY_ID": "mine"}, embedded)
    assert (one.url_of("dynamodb"), one.url_of("sqs")) == ("http://127.0.0.1:8000", embedded)
    assert one.environment()["AWS_ENDPOINT_URL_DYNAMODB"] == "http://127.0.0.1:8000"
    assert one.environment()["AWS_ACCESS_KEY_ID"] == "mine"
    assert not needs_embedded({"AWS_ENDPOINT_URL": "http://127.0.0.1:4566"})
    assert needs_embedded({"AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:8000", "AWS_ENDPOINT_URL": ""})


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL_STEPFUNCTIONS"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1.2.3", "0.0.0.0"])
def test_the_service_does_not_call_itself(name: str, host: str) -> None:
    """An endpoint left over in the shell is refused by name, whichever address of this machine it has."""
    url = f"http://{host}:4001"
    with pytest.raises(UserError) as refusal:
        read_options({"PORT": "4000", name: url})
    assert str(refusal.value) == f"{name} is {url}, an address of this service itself: `unset {name}` and start again."


def test_an_endpoint_that_does_not_listen_is_refused_at_once() -> None:
    """An endpoint that does not listen is refused in one sentence; one that answers is accepted."""
    with bind(0, "a test") as listening:
        url = f"http://127.0.0.1:{port_of(listening)}"
        assert read_options({"AWS_ENDPOINT_URL": url}).port == 3000
    with pytest.raises(UserError) as refusal:
        read_options({"AWS_ENDPOINT_URL": url})
    sentence = f"AWS_ENDPOINT_URL is {url}, and nothing can be reached there (Connection refused): "
    assert str(refusal.value) == sentence + "`unset AWS_ENDPOINT_URL` and start again."


def test_an_upstreams_variable_that_is_no_address_is_refused(tmp_path: Path) -> None:
    """`run` names it at once, if a profile begins with it; another tool's variable and a bad file stop nothing."""
    (tmp_path / "bad.toml").write_bytes(b"\xff")
    given = {"STREAMKEEPER_PROFILES": str(tmp_path), "UPSTREAM_HOST": "web"}
    assert read_options(given | {"UPSTREAM_COUCHDB": "wss://a.example/b"}).profiles == tmp_path
    with pytest.raises(UserError, match=r"^UPSTREAM_COUCHDB must be an http, https, ws or wss address, in ASCII"):
        read_options(given | {"UPSTREAM_COUCHDB": "ftp://a.example"})


def test_no_aws_profile_of_the_users_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing profile, left in the shell, affects neither the requests nor their checks."""
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    assert plain_session().get_service_model("stepfunctions").service_name == "stepfunctions"
    request_validation.api_model.cache_clear()
    assert "StartExecution" in request_validation.api_model().operation_names
    assert Endpoints({}, "http://127.0.0.1:1").client("dynamodb").meta.endpoint_url == "http://127.0.0.1:1"
