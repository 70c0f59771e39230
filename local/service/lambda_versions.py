"""Answers what Lambda's API says of versions and aliases, of the functions that run here.

Sources: PublishVersion, GetAlias and UpdateAlias in the AWS Lambda API reference. Invariant: an error has the shape
that boto3 and the AWS command line read.
"""

import asyncio
import json
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from local.functions.pool import Pool, UnknownFunction, function_name
from local.functions.versions import Versions
from local.template import ACCOUNT, REGION

_FUNCTION = "/2015-03-31/functions/{name}"


def routes(functions: Pool, versions: Versions | None) -> list[Route]:
    """The routes of these actions; none where no versions are kept."""
    if versions is None:
        return []

    async def publish(request: Request) -> Response:
        name = function_name(request.path_params["name"])
        try:
            version = await asyncio.to_thread(functions.publish, name)
        except UnknownFunction:
            return _missing(f"Function not found: {name}")
        return JSONResponse({"FunctionName": name, "FunctionArn": _arn(name, version), "Version": version}, 201)

    async def alias(request: Request) -> Response:
        name, alias = function_name(request.path_params["name"]), request.path_params["alias"]
        if request.method == "PUT":
            wanted = _object(await request.body()).get("FunctionVersion")
            if wanted is not None and not versions.point(name, alias, str(wanted)):
                return _missing(f"Function not found: {_arn(name, str(wanted))}")
        version = versions.alias(name, alias)
        if version is None:
            return _missing(f"Cannot find alias arn: {_arn(name, alias)}")
        return JSONResponse({"AliasArn": _arn(name, alias), "Name": alias, "FunctionVersion": version})

    return [
        Route(f"{_FUNCTION}/versions", publish, methods=["POST"]),
        Route(f"{_FUNCTION}/aliases/{{alias}}", alias, methods=["GET", "PUT"]),
    ]


def lambda_error(status: int, code: str, message: str, kind: str, **more: str) -> Response:
    """An error of Lambda's API."""
    text = json.dumps({"Type": kind, "Message": message, "message": message} | more)
    return Response(text, status, media_type="application/json", headers={"x-amzn-ErrorType": code})


def _missing(message: str) -> Response:
    return lambda_error(404, "ResourceNotFoundException", message, "User")


def _arn(function: str, qualifier: str) -> str:
    return f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{function}:{qualifier}"


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body or b"{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
