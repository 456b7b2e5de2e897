"""HTTP error responses."""

import json
import reprlib
from typing import Any

import tensorflow as tf
from starlette.exceptions import HTTPException
from starlette.responses import Response


class RequestError(HTTPException):
    """An error whose message is sent to the client."""

    def __init__(
        self,
        message: str,
        code: int = 400,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(code, message, headers)


class Busy(RequestError):
    """The limits allow no more work; `retry_after` is in seconds."""

    def __init__(
        self, why: str = "its queue is full", retry_after: int = 1
    ) -> None:
        message = f"The server is busy: {why}. Try again."
        super().__init__(message, 503, {"retry-after": str(retry_after)})


def bad_value(key: str, rule: str, received: Any) -> RequestError:
    """The error of a request in which the value of a key breaks a rule."""
    text = reprlib.repr(received)
    return RequestError(f"`{key}` must {rule}. Received: {text}.")


def as_request_error(error: Exception) -> HTTPException:
    """Converts an error to one that reveals nothing internal to clients."""
    if isinstance(error, HTTPException):
        return error
    if isinstance(error, TimeoutError):
        return RequestError(
            "The request took longer than the server's time limit.", 504
        )
    if isinstance(error, RecursionError):
        return RequestError("The request is nested too deeply.")
    if isinstance(error, tf.errors.ResourceExhaustedError | MemoryError):
        return RequestError("There is not enough memory for this request.", 503)
    if isinstance(error, tf.errors.InvalidArgumentError):
        return RequestError(error.message.partition("\n")[0][:500])
    return RequestError(
        "The server failed to process this request; see its log.", 500
    )


def error_response(error: HTTPException) -> Response:
    """An error as JSON, in the form of TensorFlow Serving."""
    # A message may quote half a character, which only escapes can express.
    body = json.dumps({"error": error.detail})
    return Response(body, error.status_code, error.headers, "application/json")
