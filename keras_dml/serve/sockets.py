"""The socket that a server listens on, taken before anything is loaded."""

import errno
import ipaddress
import socket

from keras_dml.serve.settings import Settings


def listen(settings: Settings) -> socket.socket:
    """A socket bound to the address of the settings.

    Raises:
        OSError: If the port is in use, or there is no such address.
    """
    host, port = settings.host, settings.port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise OSError(
            f"`host` must be an address of this machine. Received: {host!r}, "
            f"which is unknown: {error.strerror}. Use 127.0.0.1."
        ) from error
    family, kind, protocol, _, address = found[0]
    opened = socket.socket(family, kind, protocol)
    # A server that has just stopped does not block its port.
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind(address)
        opened.listen(2048)
    except OSError as error:
        opened.close()
        raise OSError(_reason(error, host, port)) from error
    return opened


def is_local(host: str) -> bool:
    """Whether this machine alone can reach an address, given or named."""
    try:
        found = socket.getaddrinfo(host, None)
    except socket.gaierror:
        return False
    return ipaddress.ip_address(found[0][4][0]).is_loopback


def address_of(opened: socket.socket) -> str:
    """The address of a socket, as clients on this machine write it."""
    host, port = opened.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "localhost"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _reason(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"Port {port} of {host} is in use by another program. Use another "
            "--port, or --port 0 for a free one."
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return (
            f"Port {port} requires more privileges. Use a --port of 1024 or "
            "above."
        )
    return f"The server cannot listen on {host}, port {port}: {error.strerror}."
