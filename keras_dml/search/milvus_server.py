"""MilvusServer: calls of a server of Milvus, or of one inside a file."""

import logging
import os
from collections import Counter
from functools import cached_property
from typing import Any

from keras_dml.search.table import first_line
from keras_dml.utils.arguments import import_extra

CONNECT, CALL = 10, 30
"""Seconds after which a server counts as lost."""

_LONG = {"flush": 600, "load_collection": 600}
"""Seconds of calls that take long where there are many rows."""

_opened: Counter[str] = Counter()
"""How many connections there are to each file."""


class MilvusServer:
    """A server, to which a connection is made when it is first called.

    Args:
        uri: What messages call it.
        address: Of the server, or the path of a file.

    Attributes:
        library: pymilvus.
    """

    def __init__(self, uri: str, address: str) -> None:
        owner, extra = "An index in Milvus", "milvus"
        self.library = import_extra(owner, "pymilvus", extra)
        self._uri, self._is_file = uri, "://" not in address
        self._address = address
        self._loaded: set[str] = set()
        if self._is_file:
            import_extra(owner, "milvus_lite", extra)
            self._address = os.path.abspath(address)

    def may_exist(self) -> bool:
        """False for a file that is not there, and not to be made."""
        return not self._is_file or os.path.exists(self._address)

    def call(self, what: str, *arguments: Any, **options: Any) -> Any:
        """Calls a method of the client; OSError where it fails."""
        log = logging.getLogger("pymilvus")
        level = log.level
        # It would print what the error says, and a traceback.
        log.setLevel(logging.CRITICAL + 1)
        try:
            method = getattr(self._client, what)
            return method(*arguments, timeout=_LONG.get(what, CALL), **options)
        except Exception as error:
            said = first_line(getattr(error, "message", error))
            hint = " Only one process at a time can open a file."
            raise OSError(
                f"{self._uri} cannot be reached, read or written. Milvus "
                f"says: {said}.{hint if self._is_file else ''}"
            ) from error
        finally:
            log.setLevel(level)

    def load(self, name: str) -> None:
        """Has a collection loaded, without which it is not searched."""
        if name not in self._loaded:
            self.call("load_collection", name)
            self._loaded.add(name)

    def close(self) -> None:
        """Closes the connection, and the server of a file after the last."""
        client = self.__dict__.pop("_client", None)
        if client is None:
            return
        client.close()
        self._loaded.clear()
        _opened[self._address] -= 1
        if self._is_file and not _opened[self._address]:
            from milvus_lite.server_manager import server_manager_instance

            server_manager_instance.release_server(self._address)

    @cached_property
    def _client(self) -> Any:
        if self._is_file:
            os.makedirs(os.path.dirname(self._address), exist_ok=True)
            logging.getLogger("grpc._server").addFilter(_is_of_users)
        client = self.library.MilvusClient(
            self._address,
            token=os.environ.get("MILVUS_TOKEN", ""),
            timeout=CONNECT,
        )
        _opened[self._address] += 1
        return client


def _is_of_users(record: logging.LogRecord) -> bool:
    """Whether a log line of a server says what a user can do something about.

    The server of a file has not all methods of a cluster. Clients know, and
    it prints a traceback for each.
    """
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, NotImplementedError)
