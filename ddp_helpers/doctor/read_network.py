"""This machine's name, its ports and its network interfaces."""

from __future__ import annotations

import socket
import time
from typing import Any

PATIENCE = 2.0  # seconds for a connection within one machine


def network() -> dict[str, Any]:
    """The facts of a Machine about names and ports."""
    hostname = socket.gethostname()
    began = time.monotonic()
    address = resolve(hostname)
    return {
        "hostname": hostname,
        "address": address,
        "lookup_seconds": round(time.monotonic() - began, 1),
        "address_here": address is None or can_listen(0, address),
        "localhost": is_loopback(resolve("localhost")),
        "interfaces": _interfaces(),
        "free_port": can_listen(0),
        "loopback": connects(),
        "port_29500_free": can_listen(29500),
    }


def resolve(hostname: str) -> str | None:
    """The first address of a name, as gloo asks for it: IPv4 or IPv6."""
    try:
        found = socket.getaddrinfo(hostname, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    return str(found[0][4][0]) if found else None


def is_loopback(address: str | None) -> bool:
    return address is not None and (address.startswith("127.") or address == "::1")


def can_listen(port: int, address: str = "127.0.0.1") -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.create_server((address, port), family=family):
            return True
    except OSError:
        return False


def connects() -> bool:
    """Does a connection from this machine to itself arrive? Some firewalls and sandboxes allow the port and drop it."""
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname(), timeout=PATIENCE),
        ):
            return True
    except OSError:
        return False


def _interfaces() -> tuple[str, ...]:
    try:
        return tuple(name for _, name in socket.if_nameindex())
    except OSError:
        return ()
