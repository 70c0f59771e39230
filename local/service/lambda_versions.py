"""Answers what Lambda's API says of versions and aliases, of the functions that run here.

Sources: PublishVersion, GetAlias and UpdateAlias in the AWS Lambda API reference. Invariant: a version is of what runs
here, and nothing that somebody has created has one.
"""

import asyncio

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from local.functions.function_pool import Pool, function_name
from local.functions.function_versions import Versions
from local.service.lambda_answers import FUNCTIONS, arn, missing, read_object
from states_language.server import UnknownFunction

_FUNCTION = f"{FUNCTIONS}/{{name}}"


def routes(functions: Pool, versions: Versions | None) -> list[Route]:
    """The routes of these actions; none where no versions are kept."""
    if versions is None:
        return []

    async def publish(request: Request) -> Response:
        name = function_name(request.path_params["name"])
        try:
            version = await asyncio.to_thread(functions.publish, name)
        except UnknownFunction:
            return missing(f"Function not found: {name}")
        return JSONResponse({"FunctionName": name, "FunctionArn": arn(name, version), "Version": version}, 201)

    async def alias(request: Request) -> Response:
        name, alias = function_name(request.path_params["name"]), request.path_params["alias"]
        if request.method == "PUT":
            wanted = read_object(await request.body()).get("FunctionVersion")
            if wanted is not None and not versions.point(name, alias, str(wanted)):
                return missing(f"Function not found: {arn(name, str(wanted))}")
        version = versions.alias(name, alias)
        if version is None:
            return missing(f"Cannot find alias arn: {arn(name, alias)}")
        return JSONResponse({"AliasArn": arn(name, alias), "Name": alias, "FunctionVersion": version})

    return [
        Route(f"{_FUNCTION}/versions", publish, methods=["POST"]),
        Route(f"{_FUNCTION}/aliases/{{alias}}", alias, methods=["GET", "PUT"]),
    ]
