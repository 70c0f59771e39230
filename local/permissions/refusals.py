"""Says AccessDenied as AWS does: over HTTP in each service's protocol, and to a state machine as a Task's failure."""

import json
import uuid
from collections.abc import Callable
from typing import Any
from xml.sax.saxutils import escape

from botocore.exceptions import ClientError
from starlette.responses import Response

from local.functions import sdk
from states_language import TaskCall, TaskFailure

CODE = "AccessDeniedException"


def http(service: str, sentence: str) -> Response:
    """Returns a service's answer to a request that is not allowed."""
    request_id = str(uuid.uuid4())
    if service in ("s3", "sns"):
        # S3 speaks REST with XML, SNS the Query protocol; each has a code of its own.
        code = "AccessDenied" if service == "s3" else "AuthorizationError"
        error = f"<Code>{code}</Code><Message>{escape(sentence)}</Message>"
        identity = f"<RequestId>{request_id}</RequestId>"
        body = (
            f"<Error>{error}{identity}</Error>"
            if service == "s3"
            else f"<ErrorResponse><Error><Type>Sender</Type>{error}</Error>{identity}</ErrorResponse>"
        )
        return Response(body, 403, media_type="application/xml")
    headers = {"x-amzn-RequestId": request_id, "x-amzn-ErrorType": CODE}
    if service == "sqs":
        # Source: SQS API reference, "Making Query API requests": the code of the former protocol stays the client's.
        headers["x-amzn-query-error"] = "AccessDenied;Sender"
    text = json.dumps({"__type": f"com.amazon.coral.service#{CODE}", "message": sentence})
    return Response(text, 403 if service == "lambda" else 400, headers=headers, media_type="application/x-amz-json-1.0")


def task(call: TaskCall, client: Callable[[str], Any], sentence: str) -> TaskFailure:
    """Returns the failure of a Task that the machine's role does not allow; `client` makes a client of a service."""
    metadata = {"HTTPStatusCode": 403 if call.function is not None else 400, "RequestId": str(uuid.uuid4())}
    answer: Any = {"Error": {"Code": CODE, "Message": sentence}, "ResponseMetadata": metadata}
    model = client(sdk.client_name(call.service)).meta.service_model if call.sdk else None
    service = "lambda" if call.function is not None else call.service
    return TaskFailure(*sdk.refused(service, sdk=call.sdk, model=model, refusal=ClientError(answer, call.action)))
