"""Answers to a POST are read as http.client reads them."""

import http.client
import io
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.dynamodb.client import Response, post, read_by_http_client, read_response

FIELDS = [
    "Content-Length: 4",
    "content-length:2",
    "Content-Length: x",
    "Transfer-Encoding: chunked",
    "Connection: close",
    "Connection: keep-alive",
    "Connection: keep-alive, close",
    "Content-Type: text/plain",
    "x-amzn-RequestId: 1",
    "X-AMZN-REQUESTID:\t2 ",
    "x-amzn-requestid: no id",
    "X-Content-Length: 3",
    "no field",
    " folded: 1",
]
STATUS_LINES = [
    *(f"HTTP/1.1 {status}" for status in ("200 OK", "400 ", "500", "204 X", "100 X")),
    "HTTP/1.0 200 OK",
    "no",
]
HEADS = st.builds(
    lambda line, fields: "".join(f"{part}\r\n" for part in (line, *fields, "")).encode(),
    st.sampled_from(STATUS_LINES),
    st.lists(st.sampled_from(FIELDS), max_size=4),
)
ANSWERS = st.builds(
    bytes.__add__, HEADS, st.sampled_from([b"", b"{}", b'"ab"', b"2\r\n{}\r\n0\r\n\r\n", b"longer than it says"])
)


def read(by: Callable[[io.BufferedReader], Response], answer: bytes) -> Response | str:
    """Return the answer, or the name of the raised error."""
    try:
        return by(io.BufferedReader(io.BytesIO(answer)))
    except http.client.HTTPException as error:
        return type(error).__name__


@given(ANSWERS)
def test_an_answer_is_read_as_http_client_reads_it(answer: bytes) -> None:
    """Status, body, keep-alive and error equal http.client's, also for an answer that is cut, wrong or no HTTP."""
    assert read(read_response, answer) == read(read_by_http_client, answer)


@pytest.mark.parametrize("name", ["Connection: keep-alive", "X: y"])
def test_an_answer_of_dynamodb_is_read_without_http_client(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain head with a length is read without http.client, also in two pieces."""
    answer = f"HTTP/1.1 200 OK\r\nServer: Server\r\n{name}\r\nContent-Length: 2\r\nDate: now\r\n\r\n{{}}".encode()
    assert read(read_by_http_client, answer) == Response(200, b"{}", True, "")
    monkeypatch.delattr(http.client, "HTTPResponse")
    assert read(read_response, answer) == Response(200, b"{}", True, "")


def test_a_header_with_a_line_end_is_not_sent() -> None:
    """A header with a line end raises ValueError, because it would become two headers."""
    with pytest.raises(ValueError, match=r"^a header holds the end of a line$"):
        post(http.client.HTTPConnection("x"), {"host": "x\r\ny: z"}, b"")
