"""Upstreams with an authority of their own, and upstreams that require a client certificate, on real sockets."""

import ssl
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from handlers.connection.inputs import Closed, Opened
from handlers.profile.addresses import ProfileError
from handlers.profile.tls_field import Trust
from handlers.profile.upstream_requests import UpstreamRequest
from handlers.tls import check_trust, own_tls
from handlers.upstream.opening import follow_redirect
from local.cli import main
from tests.handlers.servers import UNTIL_CLOSE, certificate, reading, sends, serving

WAIT_S = 60.0
UNTRUSTED = "the upstream's certificate cannot be trusted: "
STREAM = sends(UNTIL_CLOSE + b"id: 1\ndata: x\n\n")


def first(address: str, trust: Trust | None) -> Opened | Closed:
    """Return the first arrival of a request to this address."""
    request = UpstreamRequest("GET", f"{address}/x", {}, allow_private=True, trust=trust)
    with reading(request) as reader:
        arrival = reader.get(WAIT_S)
    assert isinstance(arrival, Opened | Closed)
    return arrival


@pytest.fixture
def pair(tmp_path: Path) -> tuple[ssl.SSLContext, Trust]:
    """Return a server with its own authority, like a cluster's, and the three texts of its client."""
    context, authority = certificate(tmp_path, names_authority=False)
    texts = [(tmp_path / name).read_text() for name in ("authority.pem", "certificate.pem", "key.pem")]
    assert authority.read_text() == texts[0]
    context.load_verify_locations(cadata=texts[0])
    return context, Trust(texts[0], texts[1], texts[2])


def test_an_own_authority_is_trusted_and_no_other(pair: tuple[ssl.SSLContext, Trust], tmp_path: Path) -> None:
    """Certificates of an own authority may lack what public ones need; without that authority they are refused."""
    context, trust = pair
    (tmp_path / "other").mkdir()
    _, other = certificate(tmp_path / "other")
    with serving(STREAM, tls=context) as server:
        answers = [first(server.address, one) for one in (Trust(trust.ca), None, Trust(other.read_text()))]
    opened, *refused = answers
    assert isinstance(opened, Opened)
    assert [one.reason for one in refused if isinstance(one, Closed)] == ["tls", "tls"]
    assert all(isinstance(one, Closed) and one.detail.startswith(UNTRUSTED) for one in refused)


def test_an_upstream_that_requires_a_client_certificate_gets_it(pair: tuple[ssl.SSLContext, Trust]) -> None:
    """An upstream that requires a client certificate gets the profile's; without one the connection is closed."""
    context, trust = pair
    context.verify_mode = ssl.CERT_REQUIRED
    with serving(STREAM, tls=context) as server:
        assert isinstance(first(server.address, trust), Opened)
        assert isinstance(first(server.address, Trust(trust.ca)), Closed)


def test_another_origin_gets_no_certificate_and_may_have_a_public_authority(pair: tuple[ssl.SSLContext, Trust]) -> None:
    """After a redirect to another origin the client certificate is withheld, and public authorities count too."""
    _, trust = pair
    request = UpstreamRequest("GET", "https://a.example/x", {}, trust=trust)
    assert follow_redirect(request, 302, "/y").trust == trust
    moved = follow_redirect(request, 302, "https://b.example/y").trust
    assert moved == Trust(trust.ca, beside_public=True)
    assert moved is not None
    own, public = own_tls(moved).get_ca_certs(), ssl.create_default_context().get_ca_certs()
    assert len(own) == len(public) + 1
    assert own_tls(Trust(trust.ca)).get_ca_certs() == [one for one in own if one not in public]


def encrypted(folder: Path, key: str) -> str:
    """Return the key with a password."""
    plain, shut = folder / "plain.pem", folder / "shut.pem"
    plain.write_text(key)
    command = ["openssl", "pkcs8", "-topk8", "-in", str(plain), "-out", str(shut), "-passout", "pass:hunter2"]
    subprocess.run(command, check=True, capture_output=True)
    return shut.read_text()


def test_an_invalid_pem_text_is_explained_in_one_sentence(pair: tuple[ssl.SSLContext, Trust], tmp_path: Path) -> None:
    """An invalid PEM is reported with its field's name, never its content; an encrypted key does not prompt."""
    _, trust = pair
    ca = "tls.ca must hold readable certificates in PEM"
    no_pair = "tls.certificate and tls.key must be a pair in PEM, and the key without a password"
    (tmp_path / "other").mkdir()
    certificate(tmp_path / "other")
    other = (tmp_path / "other" / "key.pem").read_text()
    table = [
        (Trust("hunter2"), ca),
        (Trust("-----BEGIN CERTIFICATE-----\nhunter2\n-----END CERTIFICATE-----\n"), ca),
        (Trust(trust.ca[:-40]), ca),
        (Trust("ü"), ca),
        (Trust(certificate=trust.certificate, key="hunter2"), no_pair),
        (Trust(certificate=trust.certificate, key=other), no_pair),
        (Trust(certificate=trust.certificate, key=encrypted(tmp_path, trust.key)), no_pair),
        (Trust(certificate="hunter2", key=trust.key), no_pair),
    ]
    for one, sentence in table:
        with pytest.raises(ProfileError) as caught:
            check_trust(one)
        assert str(caught.value) == sentence
        # If it was not checked before, the reader's message is the same.
        assert first("https://127.0.0.1:9", one) == Closed("rejected", sentence)


def test_profile_check_and_new_read_certificates(
    pair: tuple[ssl.SSLContext, Trust], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An authority in the profile is read; `new` takes files and writes secrets' names, never the content."""
    context, trust = pair
    file = tmp_path / "own.toml"
    head = 'address = "https://own.example/x"\nframing = "sse"\n'
    file.write_text(f"{head}tls = {{ ca = '''{trust.ca}''' }}\n", encoding="utf-8")
    assert main(["profile", "check", str(file)]) == 0
    file.write_text(f"{head}tls = {{ ca = '''{trust.ca[:60]}''' }}\n", encoding="utf-8")
    assert main(["profile", "check", str(file)]) == 1
    assert "the profile 'own': tls.ca must hold readable certificates in PEM" in capsys.readouterr().err
    context.verify_mode = ssl.CERT_REQUIRED
    names: dict[str, Any] = {"ca": "authority.pem", "certificate": "certificate.pem", "key": "key.pem"}
    options = [part for option, name in names.items() for part in (f"--{option}", str(tmp_path / name))]
    written = tmp_path / "made.toml"
    with serving(STREAM, tls=context) as server:
        common = ["profile", "new", f"{server.address}/x", "--seconds", "0.5", "--output", str(written)]
        assert main(common) == 1
        assert main([*common, "--name", "made", *options]) == 0
    text = written.read_text(encoding="utf-8")
    assert tomllib.loads(text)["tls"] == {name: f"${{secret:made-{name}}}" for name in names}
    assert "BEGIN" not in text
    assert main(["profile", "check", str(written)]) == 0
    assert main([*common, "--key", str(tmp_path / "key.pem")]) == 2
    assert main([*common, "--ca", str(tmp_path / "missing.pem")]) == 2
    assert main([*common, "--ca", str(file)]) == 2
    errors = capsys.readouterr().err
    for sentence in (
        "--certificate and --key belong together.",
        f"--ca: {tmp_path / 'missing.pem'} cannot be read as text.",
        "The certificates cannot be used: tls.ca must hold readable certificates in PEM.",
    ):
        assert sentence in errors
