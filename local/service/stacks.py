"""Refuses CloudFormation templates with a resource that would be there in name alone.

The embedded AWS takes every template. A state machine or a function of one would be answered as created, and nothing
here could run it. Invariant: a template without such a resource is passed on as it is.
"""

import re
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from local.aws_endpoints import Endpoints

UNABLE = ("AWS::StepFunctions::", "AWS::Lambda::Function", "AWS::Serverless::")
"""What the types begin with of resources that cannot run."""
_CREATES = {"CreateStack", "UpdateStack", "CreateChangeSet", "CreateStackSet", "UpdateStackSet"}
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))")
_BUCKET_HOST = re.compile(r"([a-z0-9.-]+?)\.(?:s3[a-z0-9.-]*\.amazonaws\.com.*|localhost|s3\.localhost.*)")
REASON = (
    "This endpoint runs the state machines and functions of serverless.yml, and the machines of CreateStateMachine. "
    "Those of a CloudFormation template would not run, so a template with AWS::StepFunctions, AWS::Lambda::Function or "
    "AWS::Serverless resources is refused."
)


def unable(service: str, query: str, body: bytes, endpoints: Endpoints) -> bool:
    """Returns whether a request makes a stack of a template whose machines or functions could not run."""
    if service != "cloudformation":
        return False
    members = parse_qs(query) | parse_qs(body.decode("utf-8", "replace"))
    if members.get("Action", [""])[0] not in _CREATES:
        return False
    template = members.get("TemplateBody", [""])[0]
    if "TemplateURL" in members:
        template = _stored(members["TemplateURL"][0], endpoints.client("s3"))
    # JSON and YAML may spell any character as an escape.
    template = _ESCAPED.sub(lambda match: chr(int(match[1] or match[2], 16)), template)
    return any(kind in template for kind in UNABLE)


def _stored(url: str, s3: Any) -> str:
    """The template in a bucket; "" where there is none, for CloudFormation says so itself."""
    parts = urlsplit(url)
    host, path = _BUCKET_HOST.fullmatch(parts.hostname or ""), unquote(parts.path).lstrip("/")
    bucket, key = (host[1], path) if host else (path.partition("/")[0], path.partition("/")[2])
    try:
        return str(s3.get_object(Bucket=bucket, Key=key)["Body"].read().decode("utf-8", "replace"))
    except (BotoCoreError, ClientError):
        return ""
