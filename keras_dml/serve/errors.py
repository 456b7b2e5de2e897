"""Errors that requests are answered with, and their HTTP status codes."""

import tensorflow as tf

from keras_dml.serve.limits import NotAPicture, TooManyPixels


class Busy(RuntimeError):
    """There is more to do than the limits allow.

    Attributes:
        retry_after: Whole seconds after which to try again.
    """

    def __init__(
        self, why: str = "its queue is full", retry_after: int = 1
    ) -> None:
        super().__init__(f"The server is busy: {why}. Try again.")
        self.retry_after = retry_after


class RequestError(Exception):
    """A request that is answered with an error.

    Attributes:
        code: The HTTP status code.
    """

    def __init__(self, message: str, code: int = 400) -> None:
        super().__init__(message)
        self.code = code


# As TensorFlow Serving answers the codes of TensorFlow; others are 500.
_CODES: dict[type[Exception], int] = {
    tf.errors.InvalidArgumentError: 400,
    tf.errors.FailedPreconditionError: 400,
    tf.errors.OutOfRangeError: 400,
    tf.errors.NotFoundError: 404,
    tf.errors.AlreadyExistsError: 409,
    tf.errors.AbortedError: 409,
    tf.errors.ResourceExhaustedError: 503,
    tf.errors.UnavailableError: 503,
    tf.errors.UnimplementedError: 501,
    NotAPicture: 400,
    TooManyPixels: 413,
    Busy: 503,
    RecursionError: 400,
    MemoryError: 503,
    TimeoutError: 504,
}


def code_of(error: Exception) -> int:
    """The HTTP status code of an error; 500 if it is one of the server."""
    if isinstance(error, RequestError):
        return error.code
    matches = (x for kind, x in _CODES.items() if isinstance(error, kind))
    return next(matches, 500)


def message_of(error: Exception) -> str:
    """What a client is told; nothing of the inside of the server."""
    if isinstance(error, TimeoutError):
        return "The request took longer than the server's time limit."
    if isinstance(error, RecursionError):
        return "The request is nested too deeply."
    if isinstance(error, MemoryError):
        return "There is not enough memory for this request."
    if isinstance(error, tf.errors.OpError):
        return error.message.partition("\n")[0][:500]
    if code_of(error) == 500:
        return "The server failed to process this request; see its log."
    return str(error)
