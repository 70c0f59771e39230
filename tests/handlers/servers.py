"""Small HTTP servers on real sockets that play a script of bytes to each connection in turn, and a reader."""

import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from handlers.profile.upstream_requests import UpstreamRequest
from handlers.upstream.reader import Upstream

Script = Callable[["Peer"], None]

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
UNTIL_CLOSE = OK + b"\r\n"

# The clients that a test has made.
CLIENTS: list[Any] = []


@pytest.fixture(autouse=True)
def closing() -> Iterator[None]:
    """Check that no client's connection in MADE outlives its test, in a module that imports this."""
    yield
    while CLIENTS:
        CLIENTS.pop().close()


class Peer:
    """The server's side of one connection; `request` is what the client sent before the blank line."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.request = b""
        self.gone = threading.Event()

    def read_request(self) -> None:
        while b"\r\n\r\n" not in self.request:
            data = self.connection.recv(65536)
            if not data:
                return
            self.request += data

    def read_body(self) -> None:
        """Add the body to `request`, with the length in its head."""
        head, _, body = self.request.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0] or 0)
        while len(body) < length:
            body += self.connection.recv(65536)
        self.request = head + b"\r\n\r\n" + body

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)

    def send_chunk(self, data: bytes) -> None:
        self.send(b"%x\r\n%s\r\n" % (len(data), data))

    def wait_until_gone(self) -> None:
        """Return once the client has closed its side."""
        with suppress(OSError):
            while self.connection.recv(65536):
                pass
        self.gone.set()

    def reset(self) -> None:
        """End the connection with RST instead of FIN."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.connection.close()


def sends(*parts: bytes | threading.Event, then: Callable[[Peer], None] | None = None) -> Script:
    """Send the parts, then end, or do `then`; wait for each event among the parts."""

    def script(peer: Peer) -> None:
        for part in parts:
            if isinstance(part, bytes):
                peer.send(part)
            else:
                assert part.wait(60)
        if then is not None:
            then(peer)

    return script


def chunks(*parts: bytes | threading.Event, then: Callable[[Peer], None] | None = None) -> Script:
    """Send a head and these chunks, then break off, or do `then`; wait for each event among the chunks."""
    framed = [b"%x\r\n%s\r\n" % (len(one), one) if isinstance(one, bytes) else one for one in parts]
    return sends(CHUNKED, *framed, then=then)


def refuses(status: int) -> Script:
    """Answer with this status and nothing else."""
    return sends(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status)


def answers(*parts: bytes) -> Script:
    """Send one answer after the other on one connection, each to a whole request; then close the connection."""

    def script(peer: Peer) -> None:
        for number, part in enumerate(parts):
            if number:
                peer.request = b""
                peer.read_request()
            peer.read_body()
            peer.send(part)

    return script


class Server:
    """The address of a server, and its peers so far."""

    def __init__(self, listener: socket.socket) -> None:
        self.address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self.peers: list[Peer] = []
        self.errors: list[BaseException] = []
        self.arrived = threading.Condition()

    def wait_for_peers(self, count: int) -> None:
        """Return once `count` connections were accepted; fail after a minute."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.peers) >= count, 60)


@contextmanager
def reading(request: UpstreamRequest, **fields: Any) -> Iterator[Upstream]:
    """Yield a reader of the answer to a request, which has five seconds to connect and for each silence."""
    reader = Upstream(request, **{"connect_timeout_s": 5, "stall_after_s": 5} | fields)
    reader.start()
    try:
        yield reader
    finally:
        reader.close()


@contextmanager
def serving(*scripts: Script, reads_request: bool = True, tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    """Yield a server that plays one script a connection, in order, the last for all later ones, each in a thread."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = Server(listener)
    if tls is not None:
        server.address = server.address.replace("http:", "https:")
    threads: list[threading.Thread] = []

    def play(peer: Peer, script: Script) -> None:
        try:
            if tls is not None:
                peer.connection = tls.wrap_socket(peer.connection, server_side=True)
            if reads_request:
                peer.read_request()
            script(peer)
        except (BrokenPipeError, ConnectionError, ssl.SSLError):
            pass
        except BaseException as error:
            server.errors.append(error)
        finally:
            peer.connection.close()
            peer.gone.set()

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                peer = Peer(connection)
                script = scripts[min(len(server.peers), len(scripts) - 1)]
                thread = threading.Thread(target=play, args=(peer, script), daemon=True)
                threads.append(thread)
                with server.arrived:
                    server.peers.append(peer)
                    server.arrived.notify_all()
                thread.start()

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield server
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for peer in server.peers:
            with suppress(OSError):
                peer.connection.shutdown(socket.SHUT_RDWR)
        acceptor.join(60)
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert server.errors == []


def certificate(folder: Path, *, names_authority: bool = True) -> tuple[ssl.SSLContext, Path]:
    """Return a server's TLS for 127.0.0.1, and the certificate file of the authority that a client must trust.

    RFC 5280, section 4.2.1.1: a certificate must have the key identifier of the authority that issued it.
    """
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "an authority")])
    own_key = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    authority = (
        _issued_by(issuer, issuer, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(own_key, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    builder = _issued_by(issuer, subject, key.public_key())
    builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
    if names_authority:
        issued_with = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own_key)
        builder = builder.add_extension(issued_with, critical=False)
    made = builder.sign(authority_key, hashes.SHA256())
    trusted, shown, private = (folder / name for name in ("authority.pem", "certificate.pem", "key.pem"))
    trusted.write_bytes(authority.public_bytes(Encoding.PEM))
    shown.write_bytes(made.public_bytes(Encoding.PEM))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(shown, private)
    return tls, trusted


def _issued_by(issuer: x509.Name, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
    )
