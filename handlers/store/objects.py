"""Keeps the bodies that no item of DynamoDB holds in a bucket of S3.

Invariant: an object is written whole before anything refers to it, and its key names its content, so that writing it
again changes nothing.
"""

from collections.abc import Callable
from typing import Any

from handlers.aws.error_translation import translate_errors
from handlers.errors import StoreUnavailable


class Objects:
    """The bucket, "" where there is none; `s3` makes its client at its first use, for few invocations need it."""

    def __init__(self, s3: Callable[[], Any], bucket: str) -> None:
        self._s3 = s3
        self._bucket = bucket

    @property
    def exist(self) -> bool:
        """Whether there is a bucket."""
        return bool(self._bucket)

    def put(self, key: str, content: str | bytes) -> None:
        """Returns when the object is there, a text in UTF-8; raises StoreUnavailable."""
        with translate_errors("PutObject"):
            client = self._s3()
            if isinstance(content, str) and not getattr(client, "takes_text", False):
                content = content.encode()
            client.put_object(Bucket=self._bucket, Key=key, Body=content)

    def get(self, key: str) -> bytes:
        """The object's content; raises StoreUnavailable, also where it is not there."""
        with translate_errors("GetObject"):
            content: bytes = self._s3().get_object(Bucket=self._bucket, Key=key)["Body"].read()
        return content

    def find(self, key: str) -> bytes | None:
        """As `get`; None where it is not there, which S3 answers with AccessDenied to who may not list a bucket."""
        try:
            return self.get(key)
        except StoreUnavailable as error:
            code = getattr(error.__cause__, "response", {}).get("Error", {}).get("Code", "")
            if code in ("NoSuchKey", "AccessDenied"):
                return None
            raise


def no_client() -> Any:
    """Stands in for the client's factory where there is no bucket; it is never called."""
    raise RuntimeError("there is no bucket")
