"""Parses the profile's field `tls`: the authority of the upstream's certificate, and the certificate that we show.

    tls = { ca = "${secret:cluster-ca}", certificate = "${secret:client:crt}", key = "${secret:client:key}" }

Each is PEM, in a secret or, except for the key, as plain text. Invariant: a `Trust` that is returned without a note in
`Fields` has no key in plain text.
"""

from collections.abc import Callable
from dataclasses import field, replace

from handlers.profile import sections
from handlers.profile.checked_fields import TEXT, Fields
from handlers.values import dataclass

_BEGIN = "-----BEGIN "


@dataclass(frozen=True, slots=True)
class Trust:
    """PEM texts, "" for none, with secrets as references or filled in. With `ca` no other authority is trusted.

    If it is `beside_public`, the public ones are trusted as well.
    """

    ca: str = field(repr=False, default="")
    certificate: str = field(repr=False, default="")
    key: str = field(repr=False, default="")
    beside_public: bool = False

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that may have references to secrets."""
        return self.ca, self.certificate, self.key

    def with_secrets(self, fill: Callable[[str], str]) -> "Trust":
        """Returns the same with its secrets filled in by `fill`."""
        return replace(self, ca=fill(self.ca), certificate=fill(self.certificate), key=fill(self.key))

    def for_other_host(self) -> "Trust | None":
        """Returns the trust for another host: no certificate is shown, and public authorities are trusted too."""
        return Trust(self.ca, beside_public=True) if self.ca else None


def tls(fields: Fields) -> Trust | None:
    """Returns the field; None if the profile has none."""
    inner = fields.table("tls", '{ ca = "${secret:ca}", certificate = "${secret:crt}", key = "${secret:key}" }')
    if inner is None:
        return None
    noted = len(inner.problems)
    parsed = Trust(_pem(inner, "ca"), _pem(inner, "certificate"), _pem(inner, "key"))
    inner.refuse_unknown("tls: ca, certificate, key")
    if bool(parsed.certificate) != bool(parsed.key):
        missing = "key" if parsed.certificate else "certificate"
        inner.add_problem(missing, "is missing: certificate and key are needed together")
    if not any(parsed.texts) and len(inner.problems) == noted:
        inner.add_problem("", "must have ca, or certificate and key")
    sections.check_hidden(inner, "key", parsed.key)
    return parsed


def _pem(inner: Fields, name: str) -> str:
    text: str = inner.read(name, TEXT, "")
    referred = sections.check_references(inner, name, text)
    if text and referred == [] and _BEGIN not in text:
        inner.add_problem(name, f"must be a text in PEM ({_BEGIN}…), or refer to a secret, ${{secret:name}}")
    return text
