"""The explorer's server: the page, its files, the API that the page calls, and what guards them."""

import asyncio
import csv
import io
import ipaddress
import json
import mimetypes
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from traincast.catalog import parse_document
from traincast.core import InputError, raise_problems, type_problems
from traincast.ui.explorer.limits import REQUEST_BYTES, REQUEST_SECONDS
from traincast.ui.explorer.question import canonical_text, normal_text, read_address, read_pins
from traincast.ui.explorer.worker import failure, json_bytes, mistake
from traincast.ui.explorer.worker_pool import Busy, Pool, StatusAndBody

GET_QUESTIONS: Final = ("catalog", "model", "system")  # of the engine, by name
POST_QUESTIONS: Final = (
    *("search", "space", "explain", "plan", "scaling", "timeline", "compare", "copy", "model", "system"),
    *("design", "measured"),
)
AS_WRITTEN: Final = (*GET_QUESTIONS, "copy")  # whose answers depend on how the question is written
FIRST: Final = b'<script type="application/json" id="first">%s</script>'  # holds the page's first answer
FIRST_MODULES: Final = (  # of the page that its first drawing needs; the browser loads them beside each other
    *("main", "dom", "format", "address", "server", "figure", "theme", "answer", "terms"),
    *("charts/time", "charts/memory", "charts/ticks"),
)
LINKS: Final = ", ".join(f"</static/{name}.js>; rel=modulepreload" for name in FIRST_MODULES)
FIRST_ANSWER_SECONDS: Final = 0.15  # the page does not wait longer for its first answer
JOIN_SECONDS: Final = 5.0  # in which the page asks again for what it did not wait for
RETRY_SECONDS: Final = 1
ENDED: Final = "the server is ended; ask again once it runs"
CHECKS: Final = ThreadPoolExecutor(max_workers=2, thread_name_prefix="check")  # of questions
STATIC: Final = Path(__file__).with_name("static")

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
    "Permissions-Policy": "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
}
JSON: Final = "application/json"
LOCAL_CLIENTS: Final = ("127.0.0.1", "::1")
BACKLOG: Final = 512  # connections that the system may hold for us

mimetypes.add_type("text/javascript", ".js")  # whatever the system says: the page is served with nosniff


def application(
    pool_of: Callable[[], Pool] = Pool,
    host: str = "127.0.0.1",
    static: Path = STATIC,
    announce: Callable[[], None] = lambda: None,
) -> Starlette:
    """Return the application; `pool_of` makes the workers when it starts, `host` is where it listens."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.pool = pool_of()
        app.state.files = _read_files(static)
        try:
            await app.state.pool.warm_up("search", await _text_of("search", {}))
            announce()
            yield
        finally:
            app.state.pool.close()

    routes = [
        Route("/", page),
        Route("/static/{path:path}", file),
        Route("/api/plans.csv", table),
        *(Route(f"/api/{kind}", partial(look_up, kind)) for kind in GET_QUESTIONS),
        *(Route(f"/api/{kind}", partial(answer, kind), methods=["POST"]) for kind in POST_QUESTIONS),
        Route("/api/progress", progress, methods=["POST"]),
    ]
    errors: tuple[type[Exception], ...] = (HTTPException, InputError, Busy, ClientDisconnect, Exception)
    handlers: Any = dict.fromkeys(errors, _error_response)
    middleware = [Middleware(Guard, host=host), Middleware(RemoteGZip)]
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers, middleware=middleware)


async def page(request: Request) -> Response:
    """Return the page, with the first answer for its address where that is quick."""
    first = (await _first_content(request)).replace(b"<", b"\\u003c")
    index: bytes = request.app.state.files["index.html"][0]
    return Response(
        index.replace(FIRST % b"", FIRST % first), headers={"Link": LINKS}, media_type="text/html"
    )


async def _first_content(request: Request) -> bytes:
    """Return what the page shows before its first request: choices, state of the address, and the answer."""
    pool: Pool = request.app.state.pool
    query = request.query_params.multi_items()
    state, problems = read_address(query)
    content = dict.fromkeys(("model", "system", "answer", "refusal"), b"null")
    content["catalog"] = (await pool.answer("catalog", "{}"))[1]
    content |= {"state": json_bytes(asdict(state)), "page": json_bytes(read_pins(query))}
    if problems:
        content["refusal"] = failure(problems[0], problems)
    else:
        questions = {
            "answer": pool.answer("search", await _text_of("search", asdict(state))),
            "system": pool.answer("system", canonical_text({"system": state.system})),
            "model": pool.answer("model", canonical_text({"model": state.model, "seq": state.seq})),
        }
        answers = await asyncio.gather(*map(_answer_in_time, questions.values()))
        for name, (status, body) in zip(questions, answers, strict=True):
            content |= {name: body} if status == 200 else {"refusal": body}
    return b"{%s}" % b",".join(b'"%s":%s' % (name.encode(), value) for name, value in content.items())


async def _answer_in_time(answer: Awaitable[StatusAndBody]) -> StatusAndBody:
    """Return an answer, null if it takes long: it goes on for a while, and the page joins it."""
    waiting = asyncio.ensure_future(answer)
    try:
        return await asyncio.wait_for(asyncio.shield(waiting), FIRST_ANSWER_SECONDS)
    except (TimeoutError, Busy):
        asyncio.get_running_loop().call_later(JOIN_SECONDS, waiting.cancel)
        return 200, b"null"


def _read_files(folder: Path) -> dict[str, tuple[bytes, str]]:
    """Return content and entity tag of every file of the page, read once: that is faster."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    contents = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    return {name: (content, f'"{sha256(content).hexdigest()}"') for name, content in contents.items()}


async def file(request: Request) -> Response:
    """Return a file of the page, without content where the browser has it already."""
    name = request.path_params["path"]
    if name not in request.app.state.files:
        raise HTTPException(404)
    content, etag = request.app.state.files[name]
    headers = {"ETag": etag}
    if etag in request.headers.get("if-none-match", ""):
        return Response(None, 304, headers)
    return Response(content, headers=headers, media_type=mimetypes.guess_type(name)[0])


async def table(request: Request) -> Response:
    """Return the best plans for the address's state as CSV."""
    state, problems = read_address(request.query_params.multi_items())
    raise_problems("address", problems)
    status, body = await request.app.state.pool.answer("table", await _text_of("table", asdict(state)))
    if status != 200:
        return _response(status, body)
    rows = json.loads(body)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]) if rows else ["rank"])
    writer.writeheader()
    writer.writerows(rows)
    headers = {"Content-Disposition": 'attachment; filename="plans.csv"'}
    return Response(text.getvalue(), headers=headers, media_type="text/csv")


async def look_up(kind: str, request: Request) -> Response:
    """Return catalogue data by name."""
    content = {} if kind == "catalog" else {kind: request.query_params.get("name")}
    return _response(*await request.app.state.pool.answer(kind, canonical_text(content)))


async def answer(kind: str, request: Request) -> Response:
    """Return the engine's answer to a question in JSON; a client that leaves gives the question up."""
    pool: Pool = request.app.state.pool
    text = await _text_of(kind, await _content(request))
    waiting = asyncio.ensure_future(pool.answer(kind, text))
    leaving = asyncio.ensure_future(request.receive())  # what follows the body: the end of the connection
    try:
        await asyncio.wait((waiting, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise ClientDisconnect
        return _response(*waiting.result())
    finally:
        waiting.cancel()
        leaving.cancel()


async def progress(request: Request) -> Response:
    """Return how far a search under way is."""
    text = await _text_of("search", await _content(request))
    done, total, candidates = request.app.state.pool.progress(text)
    return _response(200, json_bytes({"done": done, "total": total, "candidates": candidates}))


async def _text_of(kind: str, content: dict[str, object]) -> str:
    """Return a question as text, a key of the cache.

    It is checked in a thread: what one client asks does not keep the files of the page from another.
    """
    text = canonical_text(content)
    if kind in AS_WRITTEN:
        return text
    return await asyncio.get_running_loop().run_in_executor(CHECKS, normal_text, text)


async def _content(request: Request) -> dict[str, Any]:
    """Return the content of a question in JSON."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise HTTPException(415, f"Content-Type must be {JSON}")
    try:
        return parse_document((await request.body()).decode(), "json")
    except (InputError, UnicodeDecodeError) as error:
        raise HTTPException(400, str(error)) from None


def _response(status: int, body: bytes, retry_seconds: int = RETRY_SECONDS) -> Response:
    """Return a JSON response; while the server is busy it says when to try again."""
    headers = {"Retry-After": str(retry_seconds)} if status == 503 else {}
    return Response(body, status, headers, JSON)


async def _error_response(request: Request, error: Exception) -> Response:
    match error:
        case HTTPException():  # the server does not serve this
            return Response(failure(error.detail), error.status_code, error.headers, JSON)
        case InputError():
            return _response(422, failure(str(error), error.problems))
        case Busy():
            return _response(503, failure(str(error)), error.seconds)
        case ClientDisconnect():
            return _response(400, failure("the request was not sent to its end"))
        case _:
            return _response(500, mistake(error))


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

        has_begun = False

        async def send_with_headers(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        app = self.app
        if not self.is_known_host(Headers(scope=scope).get("host", "")):
            app = Response(failure("this server is not known by that name"), 403, media_type=JSON)
        try:
            await app(scope, _limit_body(receive), send_with_headers)
        except asyncio.CancelledError:  # the server ends, and does not wait for this answer
            if not has_begun:
                await _response(503, failure(ENDED))(scope, receive, send_with_headers)

    def is_known_host(self, host: str) -> bool:
        """Return whether a Host header names this machine."""
        name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name.lower() in self.names
        return True


def _limit_body(receive: Receive) -> Receive:
    """Return a receiver that stops bodies larger than the limit, also those that declare no length."""
    size = 0

    async def receive_bounded() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > REQUEST_BYTES:
            raise HTTPException(413, f"a request is at most {REQUEST_BYTES >> 10} KiB")
        return message

    return receive_bounded


class TimedRequests(H11Protocol):
    """HTTP/1.1 that closes a connection whose request does not arrive in time: slow ones hold it open."""

    timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self.watch()

    def data_received(self, data: bytes) -> None:
        """Read a piece of a request."""
        super().data_received(data)
        self.watch()

    def watch(self) -> None:
        """Keep a timer while a request is on its way; between two, the keep-alive time counts."""
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self.timer = self.timer or self.loop.call_later(REQUEST_SECONDS, self.transport.close)
        elif self.timer:
            self.timer.cancel()
            self.timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer."""
        if self.timer:
            self.timer.cancel()
        super().connection_lost(exc)


class RemoteGZip(GZipMiddleware):
    """Compression of responses to other machines; on this one it costs more than it saves."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Compress the response of the application, unless the client is on this machine."""
        is_local = (scope.get("client") or ("",))[0] in LOCAL_CLIENTS
        await (self.app(scope, receive, send) if is_local else super().__call__(scope, receive, send))


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address or name of this machine; port 0 takes any that is free.

    Raises InputError if that is not possible: no such address, a port in use, or one that needs more rights.
    """
    problems = type_problems("port", port, "a whole number", int)
    if not problems and not 0 <= port < 1 << 16:
        problems = [f"port = {port}: must be from 0 to 65535"]
    if not host:
        problems.append("host = '': must be an address or a name of this machine, such as 127.0.0.1")
    raise_problems("serve", problems)
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


def run(
    listening: socket.socket,
    host: str,
    announce: Callable[[], None],
    systems: Sequence[str] = (),
    memory: int | None = None,
) -> None:
    """Serve on a socket of `listen` until interrupted; `announce` is called once it answers.

    `systems`: files of systems that the page offers besides those of the catalogue. `memory`: what all
    workers may address together [bytes]; a quarter of the machine's if None.
    """
    app = application(partial(Pool, systems=systems, memory=memory), host, announce=announce)
    config = uvicorn.Config(
        app,
        http=TimedRequests,
        access_log=False,
        server_header=False,
        log_level="critical",  # what clients send, and that they are left at the end, is no news here
        timeout_keep_alive=30,
        timeout_graceful_shutdown=2,
        lifespan="on",
        ws="none",
    )
    uvicorn.Server(config).run(sockets=[listening])  # raises the interrupt again once all is closed
