"""Small HTTP servers on real sockets, each a script of bytes for one connection after the other."""

import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

Script = Callable[["Peer"], None]

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
UNTIL_CLOSE = OK + b"\r\n"


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

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)

    def chunk(self, data: bytes) -> None:
        self.send(b"%x\r\n%s\r\n" % (len(data), data))

    def wait_until_gone(self) -> None:
        """Returns once the client has closed its side."""
        with suppress(OSError):
            while self.connection.recv(65536):
                pass
        self.gone.set()

    def reset(self) -> None:
        """Ends the connection with RST in place of FIN."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.connection.close()


class Server:
    """Where it listens, and the peers it has had so far."""

    def __init__(self, listener: socket.socket) -> None:
        self.address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self.peers: list[Peer] = []
        self.errors: list[BaseException] = []
        self.arrived = threading.Condition()

    def wait_for_peers(self, count: int) -> None:
        """Returns once `count` connections were accepted; fails after a minute."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.peers) >= count, 60)


@contextmanager
def serving(*scripts: Script, reads_request: bool = True, tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    """A server that plays one script a connection, in order, the last one for all that follow, each in a thread."""
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


def certificate(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """A server's TLS for 127.0.0.1, and the file of the certificate that a client must trust."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    trusted, private = folder / "certificate.pem", folder / "key.pem"
    trusted.write_bytes(made.public_bytes(Encoding.PEM))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(trusted, private)
    return tls, trusted
