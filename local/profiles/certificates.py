"""The options of `profile new` for certificates, which the written profile refers to as secrets.

Invariant: no content of a file is printed or written.
"""

import argparse
from pathlib import Path

from handlers.profile.addresses import ProfileError
from handlers.profile.tls_field import Trust
from handlers.tls import check_trust
from local.terminal import UserError


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ca", type=Path, metavar="FILE", help="the authority of the upstream's certificate, in PEM")
    parser.add_argument("--certificate", type=Path, metavar="FILE", help="the client certificate, with --key")
    parser.add_argument("--key", type=Path, metavar="FILE", help="the key of --certificate")


def read_trust(arguments: argparse.Namespace) -> Trust | None:
    """The certificates of the options; raises UserError if they cannot be used."""
    texts: dict[str, str] = {}
    for option in ("ca", "certificate", "key"):
        path: Path | None = getattr(arguments, option)
        try:
            texts[option] = "" if path is None else path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise UserError(f"--{option}: {path} cannot be read as text.") from None
    given = Trust(texts["ca"], texts["certificate"], texts["key"])
    if bool(given.certificate) != bool(given.key):
        raise UserError("--certificate and --key belong together.")
    try:
        check_trust(given)
    except ProfileError as problem:
        raise UserError(f"The certificates cannot be used: {problem}.") from None
    return given if any(given.texts) else None


def tls_lines(shown: Trust | None, name: str) -> str:
    """The field `tls`, and the commands that create its secrets; "" if the authority is a public one."""
    if shown is None:
        return ""
    said = zip(("ca", "certificate", "key"), shown.texts, strict=True)
    names = {one: f"{name}-{one}" for one, text in said if text}
    table = ", ".join(f'{one} = "${{secret:{secret}}}"' for one, secret in names.items())
    puts = [
        f"#   aws secretsmanager create-secret --name /streamkeeper/STAGE/{secret} --secret-string file://FILE"
        for secret in names.values()
    ]
    return "\n".join(
        ["# Each is a secret in PEM, which you create once for each stage:", *puts, f"tls = {{ {table} }}", ""]
    )
