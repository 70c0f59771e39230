"""Finds profiles: the project's in env/streams, and the user's own in ./profiles or in STREAMKEEPER_PROFILES.

Invariant: a profile of the user replaces one of the project with the same name.
"""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

from handlers.profile.checked_fields import did_you_mean
from local.checkout import IS_CHECKOUT, ROOT
from local.terminal import UserError

VARIABLE, DEFAULT = "STREAMKEEPER_PROFILES", "profiles"
SHIPPED = ROOT / "env" / "streams"


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the option; `environment_of` reads it."""
    parser.add_argument("--profiles", metavar="FOLDER", help=f"where your profiles are ({VARIABLE}, or ./{DEFAULT})")


def environment_of(arguments: argparse.Namespace) -> dict[str, str]:
    """Returns this process's environment with the folder of the option."""
    return dict(os.environ) | ({VARIABLE: arguments.profiles} if arguments.profiles else {})


def own_folder(environment: Mapping[str, str]) -> Path:
    """Returns the folder of the user's own profiles; ./profiles may be missing. Raises UserError for another path."""
    named = environment.get(VARIABLE)
    folder = Path(named or DEFAULT).resolve()
    if named and not folder.is_dir():
        raise UserError(f"{VARIABLE} or --profiles names {named}, which is not a folder.")
    return folder


def known_profiles(environment: Mapping[str, str]) -> dict[str, Path]:
    """Returns the files by the names of their profiles."""
    folders = (SHIPPED, own_folder(environment))
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.toml"))}


def unknown_profile_sentence(name: str, environment: Mapping[str, str]) -> str:
    """Returns the sentence about a name that no profile has: what resembles it, or else where it would be."""
    return (
        f"There is no profile {name!r}"
        f"{did_you_mean(name, known_profiles(environment)) or f' in {folder_for_new(environment)}.'}"
    )


def folder_for_new(environment: Mapping[str, str]) -> Path:
    """Returns the folder for a new profile, which may not exist yet."""
    folder = own_folder(environment)
    return SHIPPED if IS_CHECKOUT and not folder.is_dir() else folder
