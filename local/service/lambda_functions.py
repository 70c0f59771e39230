"""Answers Lambda's API about functions, versions and aliases, of the template and created ones.

A function is created from a zip of Python; anything that could not run is refused by name. Functions of the template
are shown, but can only be changed there. Sources: CreateFunction, GetFunction, GetFunctionConfiguration, ListFunctions,
UpdateFunctionCode, DeleteFunction, PublishVersion, GetAlias and UpdateAlias in the AWS Lambda API reference.
Invariants: a function that is reported as created can be invoked; created functions have no versions; errors have the
form that boto3 and the AWS command line read.
"""

import asyncio
import base64
import binascii
import json
import re
import time
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from local.functions.created_functions import BadPackage, CreatedFunction
from local.functions.function_pool import FunctionPool, split_function_name
from local.permissions.needs import parse_object
from local.stack import Function
from local.template import ACCOUNT, REGION
from states_language.server import UnknownFunction

FUNCTIONS = "/2015-03-31/functions"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HANDLER = re.compile(r"[^\s.]+(?:\.[^\s.]+)+")
_RUNTIME = re.compile(r"python3\.\d+")
# Settings that functions here do not support; the template's functions have none either.
_UNSUPPORTED = ("Layers", "FileSystemConfigs", "ImageConfig")
_TEMPLATE = "{} is a function of serverless.yml: change it there, and it is deployed within seconds."


class InvalidFunctionRequest(ValueError):
    """The request is refused; the message is a sentence."""


class LambdaFunctions:
    """The answers about functions, their versions and aliases."""

    def __init__(self, functions: FunctionPool) -> None:
        self._functions = functions
        self._created, self._versions = functions.created, functions.versions
        name = f"{FUNCTIONS}/{{name}}"
        self.routes = [
            Route(FUNCTIONS, self._create, methods=["POST"]),
            Route(FUNCTIONS, self._list, methods=["GET"]),
            Route(f"{FUNCTIONS}/", self._list, methods=["GET"]),
            Route(name, self._get_or_delete, methods=["GET", "DELETE"]),
            Route(f"{name}/configuration", self._get_or_delete, methods=["GET"]),
            Route(f"{name}/code", self._update, methods=["PUT"]),
            Route(f"{name}/versions", self._publish, methods=["POST"]),
            Route(f"{name}/aliases/{{alias}}", self._alias, methods=["GET", "PUT"]),
        ]

    async def _create(self, request: Request) -> Response:
        table = parse_object(await request.body())
        try:
            wanted, package = _parse_function(table), _decode_zip(table.get("Code"))
            if wanted.function.name in self._functions:
                message = f"Function already exist: {wanted.function.name}"
                return lambda_error(409, "ResourceConflictException", message)
            known = await asyncio.to_thread(self._created.put, wanted, package)
        except (InvalidFunctionRequest, BadPackage) as problem:
            return _invalid_parameter(problem)
        return JSONResponse(_describe_created(known), 201)

    async def _update(self, request: Request) -> Response:
        name = _name(request)
        known = self._created.get(name)
        try:
            if known is None and name in self._functions:
                raise InvalidFunctionRequest(_TEMPLATE.format(name))
            if known is None:
                return not_found(f"Function not found: {arn(name)}")
            package = _decode_zip(parse_object(await request.body()))
            return JSONResponse(_describe_created(await asyncio.to_thread(self._created.put, known, package)))
        except (InvalidFunctionRequest, BadPackage) as problem:
            return _invalid_parameter(problem)

    async def _get_or_delete(self, request: Request) -> Response:
        name = _name(request)
        found = _describe_all(self._functions).get(name)
        if found is None:
            return not_found(f"Function not found: {arn(name)}")
        if request.method == "DELETE":
            if self._created.get(name) is None:
                return _invalid_parameter(InvalidFunctionRequest(_TEMPLATE.format(name)))
            await asyncio.to_thread(self._created.delete, name)
            return Response(status_code=204)
        is_whole = not request.url.path.endswith("/configuration")
        return JSONResponse({"Configuration": found, "Code": {}} if is_whole else found)

    async def _list(self, _: Request) -> Response:
        return JSONResponse({"Functions": list(_describe_all(self._functions).values())})

    async def _publish(self, request: Request) -> Response:
        name = _name(request)
        try:
            version = await asyncio.to_thread(self._functions.publish, name)
        except UnknownFunction:
            return not_found(f"Function not found: {name}")
        return JSONResponse({"FunctionName": name, "FunctionArn": arn(name, version), "Version": version}, 201)

    async def _alias(self, request: Request) -> Response:
        name, alias = _name(request), request.path_params["alias"]
        if request.method == "PUT":
            wanted = parse_object(await request.body()).get("FunctionVersion")
            if wanted is not None and not self._versions.set_alias(name, alias, str(wanted)):
                return not_found(f"Function not found: {arn(name, str(wanted))}")
        if (version := self._versions.alias(name, alias)) is None:
            return not_found(f"Cannot find alias arn: {arn(name, alias)}")
        return JSONResponse({"AliasArn": arn(name, alias), "Name": alias, "FunctionVersion": version})


def _name(request: Request) -> str:
    return split_function_name(request.path_params["name"])[0]


def _parse_function(table: Mapping[str, Any]) -> CreatedFunction:
    """The function without its code; raises Unacceptable."""
    runtime = table.get("Runtime")
    if not isinstance(runtime, str) or not _RUNTIME.fullmatch(runtime):
        raise InvalidFunctionRequest(f"Runtime must be one of Python's here, such as python3.13, not {runtime!r}.")
    for name in _UNSUPPORTED:
        if table.get(name):
            raise InvalidFunctionRequest(f"{name} is not supported here: a function has the files of its zip alone.")
    variables = (table.get("Environment") or {}).get("Variables") or {}
    if not isinstance(variables, dict) or not all(isinstance(value, str) for value in variables.values()):
        raise InvalidFunctionRequest("Environment.Variables must be a mapping of texts.")
    function = Function(
        _text(table, "FunctionName", _NAME),
        _text(table, "Handler", _HANDLER),
        _number(table, "Timeout", 3, 900),
        _number(table, "MemorySize", 128, 10_240),
        variables,
    )
    at = time.strftime("%Y-%m-%dT%H:%M:%S.000+0000", time.gmtime())
    return CreatedFunction(function, runtime, str(table.get("Role", "")), str(table.get("Description", "")), at)


def _text(table: Mapping[str, Any], name: str, pattern: re.Pattern[str]) -> str:
    value = table.get(name)
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise InvalidFunctionRequest(f"{name} must match {pattern.pattern}, which {value!r} does not.")
    return value


def _number(table: Mapping[str, Any], name: str, default: int, most: int) -> int:
    """Returns a number from 1 on, or Lambda's `default` if it is absent."""
    value = table.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise InvalidFunctionRequest(f"{name} must be a whole number from 1 to {most}, not {value!r}.")
    return value


def _decode_zip(code: Any) -> bytes:
    """The zip; raises Unacceptable."""
    try:
        return base64.b64decode(code["ZipFile"], validate=True)
    except (KeyError, TypeError, binascii.Error):
        words = "Code must be given as ZipFile: neither an object of a bucket nor an image is read here."
        raise InvalidFunctionRequest(words) from None


def _describe_all(functions: FunctionPool) -> dict[str, dict[str, Any]]:
    """The configuration of each function, by its name."""
    own = {function.name: _describe(function) for function in functions.functions}
    return own | {
        one.function.name: _describe_created(one) for one in functions.created if one.function.name not in own
    }


def _describe(function: Function) -> dict[str, Any]:
    return {
        "FunctionName": function.name,
        "FunctionArn": arn(function.name),
        "Handler": function.handler,
        "Timeout": function.function_timeout_s,
        "MemorySize": function.memory_mb,
        "Environment": {"Variables": dict(function.environment)},
        "Version": "$LATEST",
        "PackageType": "Zip",
        "State": "Active",
        "LastUpdateStatus": "Successful",
    }


def _describe_created(created: CreatedFunction) -> dict[str, Any]:
    return _describe(created.function) | {
        "Runtime": created.runtime,
        "Role": created.role,
        "Description": created.description,
        "LastModified": created.modified,
        "CodeSize": created.size,
        "CodeSha256": base64.b64encode(bytes.fromhex(created.code)).decode(),
    }


def _invalid_parameter(problem: Exception) -> Response:
    return lambda_error(400, "InvalidParameterValueException", str(problem))


def lambda_error(status: int, code: str, message: str, **more: str) -> Response:
    """An error of Lambda's API."""
    text = json.dumps({"Type": "User", "Message": message, "message": message} | more)
    return Response(text, status, media_type="application/json", headers={"x-amzn-ErrorType": code})


def not_found(message: str) -> Response:
    """The error for something that does not exist."""
    return lambda_error(404, "ResourceNotFoundException", message)


def arn(function: str, qualifier: str = "") -> str:
    """The ARN of a function, or of a version or an alias of it."""
    return f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{function}{f':{qualifier}' if qualifier else ''}"
