"""Logs: a line of JSON a request, on stderr."""

import logging

from keras_dml.serve.guard import request_log


def log_requests() -> None:
    """Writes the lines as they are, apart from other messages."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    request_log.addHandler(handler)
    request_log.propagate = False
    request_log.setLevel(logging.INFO)
