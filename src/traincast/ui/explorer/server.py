"""The explorer's server socket and server loop."""

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import uvicorn

from traincast.core.errors import InputError, type_problems
from traincast.ui.explorer.app import application

BACKLOG: Final = 512  # connections that the system may hold for us


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address or name of this machine; port 0 takes any that is free.

    Raises InputError if that is not possible: no such address, a port in use, or one that needs more rights.
    """
    problems = type_problems("port", port, "a whole number", int)
    if not problems and not 0 <= port < 1 << 16:
        problems = [f"port = {port}: must be from 0 to 65535"]
    if problems:
        raise InputError("serve", problems)
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = addresses[0]
        listening = socket.create_server(address[:2], family=family, backlog=BACKLOG)
        # Without this, bodies wait 40 ms for an acknowledgement.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError("serve", [f"cannot listen on {host}, port {port}: {reason}"]) from None


def run(listening: socket.socket, host: str, announce: Callable[[], None]) -> None:
    """Serve on a socket of `listen` until interrupted; `announce` is called once the server answers."""
    config = uvicorn.Config(
        application(host=host), log_level="warning", access_log=False, server_header=False,
        timeout_keep_alive=30, timeout_graceful_shutdown=2, lifespan="on", ws="none",
    )  # fmt: skip
    server = _Server(config, announce)
    with suppress(KeyboardInterrupt):  # uvicorn raises the signal again once all is closed
        server.run(sockets=[listening])


class _Server(uvicorn.Server):
    """A uvicorn server that calls back once it accepts requests."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]):
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._announce()
