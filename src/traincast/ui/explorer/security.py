"""Checks of every request (host name, size) and security headers of every answer."""

import ipaddress
import socket
from typing import Final

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from traincast.ui.explorer.limits import REQUEST_BYTES
from traincast.ui.explorer.worker import failure

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; connect-src 'self';"
    " manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """ASGI middleware that refuses foreign host names and bodies that are too large, and sets the headers of every answer.

    A page of another site that has its own name resolve to this machine (DNS rebinding) sends that name as Host: only names of
    this machine and bare addresses are answered.

    Parameters
    ----------
    app : ASGI application
        The application that it protects.
    host : str
        Where the server listens.
    """

    def __init__(self, app: ASGIApp, host: str):
        self.app = app
        self.names = {"localhost", host.lower(), socket.gethostname().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on to the application."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                added_headers = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *added_headers]}
            await send(message)

        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        if not self.is_own(headers.get(b"host", "")):
            await _refuse(403, "this server is not known by that name", sent)
        elif _length(headers.get(b"content-length", "0")) > REQUEST_BYTES:
            await _refuse(413, TOO_LARGE, sent)
        else:
            await self.app(scope, _bounded(receive), sent)

    def is_own(self, host: str) -> bool:
        """Return whether a Host header names this machine."""
        name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name.lower() in self.names
        return True


TOO_LARGE: Final = f"a request is at most {REQUEST_BYTES >> 10} KiB"


def _length(text: str) -> int:
    """Return the length that a request declares [byte]."""
    return int(text) if text.isascii() and text.isdecimal() else 0


def _bounded(receive: Receive) -> Receive:
    """Return a receiver that stops bodies larger than the limit."""
    size = 0

    async def received() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > REQUEST_BYTES:
            raise HTTPException(413, TOO_LARGE)
        return message

    return received


async def _refuse(status: int, message: str, send: Send) -> None:
    """Answer without calling the application."""
    body = failure(message)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
