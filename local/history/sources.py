"""Reads histories from files and from Step Functions.

A file is the output of `aws stepfunctions get-execution-history`: one page or, as the AWS CLI joins them, all.
Invariant: every invalid file and every refusal becomes a UserError that names the file or the execution.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import botocore.session
from botocore.exceptions import BotoCoreError, ClientError

from local.options import UserError
from states_language.workbench import Mistake, data
from timeline.analysis import HistoryError, join_histories, read_page
from timeline.lanes import Event

_ARN = re.compile(r"arn:aws[a-z-]*:states:([a-z0-9-]+):\d{12}:execution:([^:]+):([^:/]+)")
# "The maximum number of results that are returned per call" (GetExecutionHistory, maxResults).
_PAGE = 1000

NamedHistory = tuple[str, list[Event]]


def read_files(paths: Sequence[Path]) -> list[NamedHistory]:
    """Returns each execution with its name; raises UserError if a file is not a history or a page is missing."""
    pages = []
    for path in paths:
        try:
            pages.append((str(path), read_page(data(path, "the history"))))
        except Mistake as problem:
            is_name = path.name == str(path) and not path.suffix and not path.exists()
            hint = f" For a stream, give --execution ARN, which `streamkeeper status {path} --json` prints"
            hint += " (for a stream in parts, that of a part)."
            raise UserError(f"{problem}{hint if is_name else ''}") from None
        except HistoryError as problem:
            raise UserError(f"{path} is not a history: {problem}.") from None
    try:
        found = join_histories(pages)
    except HistoryError as problem:
        raise UserError(f"{problem}.") from None
    firsts = [name for name, page in pages if page[0]["id"] == 1]
    return [(Path(name).name, history) for name, history in zip(firsts, found, strict=True)]


def read_execution(arn: str) -> NamedHistory:
    """Returns an execution's history from Step Functions, as reached by the SDK's own variables."""
    said = _ARN.fullmatch(arn)
    if said is None:
        raise UserError(
            f"--execution must be the ARN of a Standard execution, arn:aws:states:<region>:<account>:execution:"
            f"<machine>:<name>, not {arn!r}."
        )
    try:
        return said[3], _events(botocore.session.Session().create_client("stepfunctions", region_name=said[1]), arn)
    except ClientError as refusal:
        error = refusal.response["Error"]
        raise UserError(f"Step Functions refused {arn}: {error['Code']}: {error.get('Message', '')}") from None
    except BotoCoreError as problem:
        raise UserError(f"{arn} cannot be read: {str(problem).rstrip('.')}.") from None


def region_and_machine(arn: str) -> tuple[str, str]:
    """Returns the region and the machine's name in an execution's ARN; both "" if it is not one."""
    said = _ARN.fullmatch(arn)
    return ("", "") if said is None else (said[1], said[2])


def _events(client: Any, arn: str) -> list[Event]:
    events: list[Event] = []
    for page in client.get_paginator("get_execution_history").paginate(
        executionArn=arn, includeExecutionData=False, PaginationConfig={"PageSize": _PAGE}
    ):
        events += page["events"]
    return events
