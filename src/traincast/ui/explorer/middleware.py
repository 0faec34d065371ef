"""Middleware: checks of host name and size of requests, security headers, compression for remote clients."""

import ipaddress
import socket
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from traincast.ui.explorer.limits import REQUEST_BYTES
from traincast.ui.explorer.worker import failure

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
JSON: Final = "application/json"
LOCAL_CLIENTS: Final = ("127.0.0.1", "::1")
TOO_LARGE: Final = f"a request is at most {REQUEST_BYTES >> 10} KiB"


class Guard:
    """Middleware that refuses foreign host names and bodies that are too large, and adds security headers.

    A page of another site can have its own name resolve to this machine (DNS rebinding), and sends that name
    as Host. Names of this machine and bare addresses are answered; TrustedHostMiddleware knows no addresses.
    """

    def __init__(self, app: ASGIApp, host: str):
        self.app = app
        self.names = {"localhost", host.lower(), socket.gethostname().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on to the application."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        headers = Headers(scope=scope)
        length = headers.get("content-length", "")
        if not self.is_known_host(headers.get("host", "")):
            app: ASGIApp = Response(failure("this server is not known by that name"), 403, media_type=JSON)
        elif length.isascii() and length.isdecimal() and int(length) > REQUEST_BYTES:
            app = Response(failure(TOO_LARGE), 413, media_type=JSON)
        else:
            app = self.app
        await app(scope, _bounded(receive), send_with_headers)

    def is_known_host(self, host: str) -> bool:
        """Return whether a Host header names this machine."""
        name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name.lower() in self.names
        return True


def _bounded(receive: Receive) -> Receive:
    """Return a receiver that stops bodies larger than the limit, also those that declare no length."""
    size = 0

    async def receive_bounded() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > REQUEST_BYTES:
            raise HTTPException(413, TOO_LARGE)
        return message

    return receive_bounded


class RemoteGZip(GZipMiddleware):
    """Compression of responses to other machines; on this one it costs more than it saves."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Compress the response of the application, unless the client is on this machine."""
        is_local = (scope.get("client") or ("",))[0] in LOCAL_CLIENTS
        await (self.app(scope, receive, send) if is_local else super().__call__(scope, receive, send))
