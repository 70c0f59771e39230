"""Reads the secrets that a profile refers to, from Secrets Manager and from the Parameter Store.

A secret that is missing or forbidden raises StreamRejected: its stream counts as refused until that is corrected
(`performer.py`). Any other failure raises StreamDropped. Powertools caches each value for a minute; it is imported with
the first reference, since few profiles have one. Invariant: messages and logs have the secret's name, never its value.
"""

import json
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from handlers.aws.error_translation import quoted_id
from handlers.errors import StreamDropped, StreamRejected
from handlers.profile.addresses import ProfileError
from handlers.profile.behaviour import Profile
from handlers.profile.secret_references import Reference, Secrets
from handlers.profile.upstream_requests import request_of
from handlers.tls import check_trust

# Connections last minutes, so most read a fresh value and notice a rotation; drops in quick succession do not.
MAX_AGE_S = 60
# Errors that no retry helps: the secret does not exist, or the role must not read it, or not use its key.
_FINAL = frozenset(
    {
        "AccessDeniedException",
        "DecryptionFailure",
        "InvalidKeyId",
        "InvalidParameterException",
        "InvalidRequestException",
        "ParameterNotFound",
        "ResourceNotFoundException",
        "ValidationException",
    }
)


class SecretValues:
    """The values of secret references; `client` makes the client of a service by its name.

    `prefix` begins the names of the stage's secrets.
    """

    def __init__(self, client: Callable[[str], Any], prefix: str) -> None:
        self._provider = cache(lambda kept_in: _provider(kept_in, client))
        self._prefix = prefix

    def read(self, references: Iterable[Reference], *, anew: bool = False) -> Secrets:
        """Returns the values by reference; `anew` bypasses the cache.

        Raises StreamRejected if one is missing or forbidden or is not what the reference says, StreamDropped if AWS
        does not answer.
        """
        values: dict[Reference, str] = {}
        fresh: set[tuple[str, str]] = set()
        for reference in references:
            whole = reference._replace(name=self._read_whole(reference))
            place = (whole.kept_in, whole.name)
            text = self._text(whole, anew=anew and place not in fresh)
            fresh.add(place)
            values[reference] = _part(whole, text)
        return values

    def read_for_request(self, profile: Profile, stream_id: str, *, anew: bool) -> tuple[Secrets, str]:
        """Returns the values for the next request of a stream, and why it cannot be made; "" if it can."""
        try:
            values = self.read(profile.secrets, anew=anew)
            check_trust(request_of(profile, stream_id, None, values).trust)
        except (StreamRejected, ProfileError) as error:
            return {}, str(error)
        return values, ""

    def _read_whole(self, reference: Reference) -> str:
        name = reference.name if reference.name.startswith("/") else f"{self._prefix}{reference.name}"
        if not name.startswith(self._prefix):
            raise StreamRejected(
                f"{secret_name(reference)} is not under {self._prefix}, where this stage's secrets are"
            )
        return name

    def _text(self, reference: Reference, *, anew: bool) -> str:
        from aws_lambda_powertools.utilities.parameters.exceptions import GetParameterError
        from botocore.exceptions import BotoCoreError

        decrypt = {"decrypt": True} if reference.kept_in == "ssm" else {}
        try:
            provider = self._provider(reference.kept_in)
            value = provider.get(reference.name, max_age=MAX_AGE_S, force_fetch=anew, **decrypt)
        except GetParameterError as error:
            raise _explain(reference, error.__context__) from None
        except BotoCoreError as error:  # the client itself cannot be made: no region, or no such AWS profile
            raise _explain(reference, error) from None
        if not isinstance(value, str) or not value:
            raise StreamRejected(f"{secret_name(reference)} is not a text")
        return value


def _provider(kept_in: str, client: Callable[[str], Any]) -> Any:
    from aws_lambda_powertools.utilities import parameters

    if kept_in == "ssm":
        return parameters.SSMProvider(boto3_client=client("ssm"))
    return parameters.SecretsProvider(boto3_client=client("secretsmanager"))


def _explain(reference: Reference, cause: BaseException | None) -> Exception:
    """Returns an error with the secret's name only, because the client's own message quotes the request."""
    from botocore.exceptions import ClientError

    code = cause.response.get("Error", {}).get("Code", "") if isinstance(cause, ClientError) else ""
    request = quoted_id(cause.response) if isinstance(cause, ClientError) else ""
    if code in _FINAL:
        return StreamRejected(f"{secret_name(reference)} cannot be read: {code}{request}")
    return StreamDropped(f"{secret_name(reference)} cannot be read now: {code or type(cause).__name__}{request}")


def _part(reference: Reference, text: str) -> str:
    if not reference.key:
        return text
    try:
        value = json.loads(text)[reference.key]
    except (ValueError, RecursionError, KeyError, TypeError):
        raise StreamRejected(
            f"{secret_name(reference)} is not a JSON object with the field {reference.key!r}"
        ) from None
    if not isinstance(value, str) or not value:
        raise StreamRejected(f"the field {reference.key!r} of {secret_name(reference)} is not a text")
    return value


def secret_name(reference: Reference) -> str:
    """Returns the name of the secret in messages."""
    return f"the {'parameter' if reference.kept_in == 'ssm' else 'secret'} {reference.name!r}"
