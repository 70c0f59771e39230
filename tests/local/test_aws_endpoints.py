"""The choice of each service's endpoint."""

from local.aws_endpoints import Endpoints, needs_embedded


def test_only_the_sdks_variables_choose_another_endpoint() -> None:
    """AWS_ENDPOINT_URL takes the place of the embedded AWS, a service's own variable for that service alone."""
    embedded = "http://127.0.0.1:1"
    alone = Endpoints({"AWS_ACCESS_KEY_ID": "mine", "AWS_PROFILE": "work"}, embedded)
    assert alone.of("dynamodb") == embedded
    assert alone.environment()["AWS_ACCESS_KEY_ID"] == "local"
    one = Endpoints({"AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:8000", "AWS_ACCESS_KEY_ID": "mine"}, embedded)
    assert (one.of("dynamodb"), one.of("sqs")) == ("http://127.0.0.1:8000", embedded)
    assert one.environment()["AWS_ENDPOINT_URL_DYNAMODB"] == "http://127.0.0.1:8000"
    assert one.environment()["AWS_ACCESS_KEY_ID"] == "mine"
    assert not needs_embedded({"AWS_ENDPOINT_URL": "http://127.0.0.1:4566"})
    assert needs_embedded({"AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:8000", "AWS_ENDPOINT_URL": ""})
