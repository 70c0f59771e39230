"""Decides from which network addresses a stream may be read.

A name is resolved once, each of its addresses is checked, and the connection goes to one of those. So a name that
resolves differently a moment later (DNS rebinding) gains nothing. For example 10.0.0.1 needs `allow_private = true`,
and 169.254.169.254 is always refused. Invariant: link-local addresses, AWS's metadata service among them, are refused
whatever a profile allows.
"""

import ipaddress
import socket
from urllib.parse import urlsplit

# The instance metadata service and AWS's other services inside a VPC have this prefix; IPv4's is link-local.
_AWS_LOCAL = ipaddress.ip_network("fd00:ec2::/32")
# RFC 6052, section 2.1: an IPv4 address in the last 32 bits.
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

# Not public, though some versions of Python call them global: documentation (RFC 9637), and the protocol assignments
# (RFC 6890), at one of which a cloud provider has a metadata service.
_NOT_PUBLIC = (ipaddress.ip_network("3fff::/20"), ipaddress.ip_network("192.0.0.0/24"))

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class AddressRefused(OSError):
    """A name leads to an address that may not be connected to; the message holds neither."""


def address_refusal(address: str, *, allow_private: bool) -> str:
    """Returns in a phrase why no connection may be made to the IP address; "" if one may be made."""
    ip = _inner(ipaddress.ip_address(address.partition("%")[0]))
    if ip.is_link_local or (ip.version == 6 and ip in _AWS_LOCAL):
        return "a link-local address, which is never allowed"
    if ip.is_multicast or ip.is_unspecified or (ip.is_reserved and not ip.is_loopback):
        return "not the address of a host"
    # Not `is_private`: addresses that are not global include the carriers' shared space (100.64.0.0/10). IPv6's first
    # private addresses (fec0::/10, RFC 3879) count as global there.
    is_private = not ip.is_global or (ip.version == 6 and ip.is_site_local) or any(ip in one for one in _NOT_PUBLIC)
    if is_private and not allow_private:
        return "a private address, which the profile does not allow (allow_private = true)"
    return ""


def resolve(host: str, port: int, *, allow_private: bool) -> list[str]:
    """Returns the IP addresses of `host` in the order of preference; raises AddressRefused if any of them is refused.

    Any, not all: a name with both a public and a private address is no accident. Raises socket.gaierror.
    """
    infos = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(address[0]) for *_, address in infos))
    for address in addresses:
        if why := address_refusal(address, allow_private=allow_private):
            raise AddressRefused(f"the upstream's name resolves to {why}")
    return addresses


def numeric_refusal(url: str, *, allow_private: bool) -> str:
    """Returns why no connection may be made to a URL whose host is a number, in any spelling; "" if one may be made.

    For a host name it returns "": its addresses are checked when connecting.
    """
    host = (urlsplit(url).hostname or "").rstrip(".")
    try:
        infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return ""
    return next(filter(None, (address_refusal(str(at[0]), allow_private=allow_private) for *_, at in infos)), "")


def _inner(address: IPAddress) -> IPAddress:
    """Returns the IPv4 address that an IPv6 address stands for, or the address itself."""
    if isinstance(address, ipaddress.IPv6Address):
        # RFC 4380, section 4: the client behind a Teredo address.
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if inner is not None:
            return inner
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address
