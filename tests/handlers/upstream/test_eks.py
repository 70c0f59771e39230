"""`profile new` and `profile try` with a cluster of EKS, with their caller's credentials."""

import tomllib
from pathlib import Path

import pytest
from botocore.credentials import Credentials

from local.cli import main
from tests.handlers import eks

# Each watch ends by itself sooner.
LOOK_S = "60"


def test_a_profile_of_a_cluster_is_written_and_tried(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The token is signed each time; missing credentials and a missing region are each explained."""
    for name, value in (("ACCESS_KEY_ID", "AKIDEXAMPLE"), ("SECRET_ACCESS_KEY", "a secret")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    file = tmp_path / "pods.toml"
    with eks.cluster(tmp_path, Credentials("AKIDEXAMPLE", "a secret"), endpoint) as (server, authority, roles):
        address = f"{server.address}/api/v1/pods?watch=1"
        command = ["profile", "new", address, "--ca", str(tmp_path / "authority.pem"), "--seconds", LOOK_S]
        assert main([*command, "--eks", "prod:eu-central-1", "--output", str(file)]) == 0
        written = tomllib.loads(file.read_text())
        assert (written["token"], written["framing"], written["tls"]["ca"]) == (
            eks.TOKEN,
            "ndjson",
            "${secret:127-0-0-1-ca}",
        )
        assert main(["profile", "check", str(file)]) == 0
        # The authority was written as a secret, but is public: here it stands in the profile.
        file.write_text(file.read_text().replace('"${secret:127-0-0-1-ca}"', f"'''\n{authority}'''"))
        capsys.readouterr()
        assert main(["profile", "try", str(file), "--seconds", LOOK_S]) == 0
        assert "total: event 2" in capsys.readouterr().out
        assert len(roles) > 2
        for name, value in (("CONFIG_FILE", "/dev/null"), ("SHARED_CREDENTIALS_FILE", "/dev/null"), ("ROLE_ARN", "")):
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        assert main(["profile", "try", str(file), "--seconds", LOOK_S]) == 1
        why = "a token for the cluster 'prod' cannot be signed: there are no AWS credentials"
        assert f"closed: no_token: {why}\n" in capsys.readouterr().out
        assert main([*command, "--eks", "prod:eu-central-1", "--output", str(tmp_path / "other.toml")]) == 1
        assert capsys.readouterr().err == f"streamkeeper: no answer: no_token: {why}\n"
        assert main([*command, "--eks", "prod", "--output", "-"]) == 2
        assert "token.cluster must be the name of the cluster" in capsys.readouterr().err
