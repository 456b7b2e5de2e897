"""Hosts: the names by which a server of this machine alone may be asked.

A website can let its own name point to 127.0.0.1, and its scripts would then
read what a server there answers (DNS rebinding). Browsers send that name in
the header Host.
"""

import re

from keras_dml.serve.errors import RequestError
from keras_dml.serve.sockets import is_local

_LOCAL = frozenset(("localhost", "127.0.0.1", "::1"))


def allowed_hosts(host: str) -> frozenset[str] | None:
    """Names by which a server may be asked; None allows any.

    Args:
        host: The address that it listens on.
    """
    return _LOCAL | {host.lower()} if is_local(host) else None


def check_host(header: bytes, allowed: frozenset[str] | None) -> None:
    """Checks the header Host, which only programs leave out.

    Raises:
        RequestError: If its name is not allowed.
    """
    if allowed is None or not header:
        return
    text = header.decode("latin-1")
    name = re.sub(r":\d*$", "", text).strip("[]").rstrip(".").lower()
    if name not in allowed:
        names = ", ".join(sorted(x for x in allowed if ":" not in x))
        raise RequestError(
            f"The header `Host` must name this machine: {names} or [::1], "
            f"with or without a port. Received: {text[:100]!r}. Start the "
            "server with another --host and a --token if other machines are "
            "to use it.",
            403,
        )
