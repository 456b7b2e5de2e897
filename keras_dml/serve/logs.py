"""Logs: lines of JSON on stderr, of requests and everything else."""

import json
import logging
import warnings
from typing import Any

REQUESTS = "keras_dml.serve.requests"
"""Name of the logger that gets a record for each request."""


def log_as_json() -> None:
    """Writes all lines as JSON, among them those of requests."""

    def log_warning(message: Warning | str, *_: Any, **__: Any) -> None:
        # The line of code is left out, as in the command.
        logging.getLogger("py.warnings").warning("%s", message)

    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonFormatter())
    warnings.showwarning = log_warning
    logging.getLogger(REQUESTS).setLevel(logging.INFO)


class JsonFormatter(logging.Formatter):
    """Formats a record as a line of JSON.

    Everything but ASCII is escaped, as texts of clients and file names may hold
    control characters, or characters that no encoding has.
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
