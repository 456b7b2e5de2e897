"""Logs: lines of JSON on stderr, of requests and of all else."""

import json
import logging
import warnings
from typing import Any

REQUESTS = "keras_dml.serve.requests"
"""The logger that gets a record for each request."""


def log_as_json() -> None:
    """Writes all lines as JSON, among them those of requests."""

    def log_warning(message: Warning | str, *_: Any, **__: Any) -> None:
        # Without the line of code that it comes from, as the command does.
        logging.getLogger("py.warnings").warning("%s", message)

    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonFormatter())
    warnings.showwarning = log_warning
    logging.getLogger(REQUESTS).setLevel(logging.INFO)


class JsonFormatter(logging.Formatter):
    """A record as a line of JSON.

    All that is not ASCII is escaped, as texts of clients and names of files
    may hold what a terminal would obey, or what no encoding has.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": record.created,
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, separators=(",", ":"))
