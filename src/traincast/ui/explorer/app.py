"""The explorer as an ASGI application: the page, its files, and the API that the page calls."""

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from traincast.core.errors import InputError
from traincast.ui.explorer.question import State, parse_json, read_address
from traincast.ui.explorer.security import Guard
from traincast.ui.explorer.static_files import Body, static_files
from traincast.ui.explorer.worker import failure, json_bytes
from traincast.ui.explorer.worker_pool import Busy, Pool, StatusAndBody

ASKED: Final = (
    "search",
    "explain",
    "plan",
    "scaling",
    "timeline",
    "copy",
    "model",
    "system",
)  # POST endpoints, each with a state
FIRST: Final = (
    b'<script type="application/json" id="first"></script>'  # of the page; filled with its first answer
)
FIRST_ANSWER_SECONDS: Final = 0.15  # the page does not wait longer for its first answer
RETRY_SECONDS: Final = 1
LOCAL_CLIENTS: Final = ("127.0.0.1", "::1")  # addresses of clients on this machine
JSON: Final = "application/json"
DEFAULT: Final = json.dumps(State().to_dict(), sort_keys=True)


def application(
    pool_of: Callable[[], Pool] = Pool,
    host: str = "127.0.0.1",
    files: Callable[[], Mapping[str, Body]] = static_files,
) -> Starlette:
    """Return the application.

    Parameters
    ----------
    pool_of : callable
        Makes the pool of workers when the server starts.
    host : str
        Where it listens, one of the names it may be asked by.
    files : callable
        Gives the files of the page when the server starts.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.pool, app.state.files = pool_of(), files()
        try:
            await app.state.pool.ready("search", DEFAULT)
            yield
        finally:
            app.state.pool.close()

    routes = [
        Route("/", page),
        Route("/static/{path:path}", static),
        Route("/api/plans.csv", table),
        Route("/api/catalog", _get_endpoint("catalog")),
        Route("/api/model", _get_endpoint("model")),
        Route("/api/system", _get_endpoint("system")),
        *(Route(f"/api/{kind}", _post_endpoint(kind), methods=["POST"]) for kind in ASKED),
    ]
    handlers: Any = {
        HTTPException: _refused,
        InputError: _unusable,
        Busy: _busy,
        ClientDisconnect: _client_gone,
    }
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    app.add_middleware(Guard, host=host)
    return app


async def page(request: Request) -> Response:
    """Return the page, with the first answer for its address where that is quick."""
    index = request.app.state.files.get("index.html")
    if index is None:
        raise HTTPException(404, "the page is not part of this installation")
    first = (await _first_content(request)).replace(b"<", b"\\u003c")
    return _response(
        request, Body(index.content.replace(FIRST, FIRST[:-9] + first + FIRST[-9:]), index.media_type)
    )


async def _first_content(request: Request) -> bytes:
    """Return what the page shows before its first request: state of the address, choices, and the answer."""
    pool: Pool = request.app.state.pool
    catalog = (await pool.answer("catalog", "{}"))[1]
    parts: dict[str, bytes] = {
        "state": b"null",
        "model": b"null",
        "system": b"null",
        "answer": b"null",
        "error": b"null",
    }
    try:
        state = read_address(request.query_params.multi_items())
    except InputError as error:
        parts["error"] = _error_of(failure(str(error), error.problems))
    else:
        text = _canonical_text(state.to_dict())
        parts["state"] = json_bytes(state.to_dict())
        wanted = {
            "answer": pool.answer("search", text),
            "system": pool.answer("system", _canonical_text({"system": state.system})),
            "model": pool.answer("model", _canonical_text({"model": state.model, "seq": state.seq})),
        }
        for name, answer in zip(
            wanted, await asyncio.gather(*map(_answer_in_time, wanted.values())), strict=True
        ):
            if answer is not None:
                parts[name if answer[0] == 200 else "error"] = (
                    answer[1] if answer[0] == 200 else _error_of(answer[1])
                )
    return (
        b",".join(
            [
                b'{"catalog":' + catalog,
                *(b'"' + name.encode() + b'":' + value for name, value in parts.items()),
            ]
        )
        + b"}"
    )


async def _answer_in_time(answer: Awaitable[StatusAndBody]) -> StatusAndBody | None:
    """Return an answer, or None if it takes long."""
    try:
        return await asyncio.wait_for(answer, FIRST_ANSWER_SECONDS)
    except (TimeoutError, Busy):
        return None


def _error_of(body: bytes) -> bytes:
    """Return the error object in the body of an error response."""
    return json_bytes(json.loads(body)["error"])


async def static(request: Request) -> Response:
    """Return a file of the page."""
    file = request.app.state.files.get(request.path_params["path"])
    if file is None:
        raise HTTPException(404)
    return _response(request, file)


async def table(request: Request) -> Response:
    """Return the best plans for the address's state as CSV."""
    state = read_address(request.query_params.multi_items())
    status, body = await request.app.state.pool.answer("table", _canonical_text(state.to_dict()))
    if status != 200:
        return _json_response(request, status, body)
    rows = json.loads(body)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]) if rows else ["rank"])
    writer.writeheader()
    writer.writerows(rows)
    name = {"Content-Disposition": 'attachment; filename="plans.csv"'}
    return Response(text.getvalue(), headers=name, media_type="text/csv")


def _get_endpoint(kind: str) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint for catalogue data by name."""

    async def endpoint(request: Request) -> Response:
        query = request.query_params
        content = {} if kind == "catalog" else {kind: query.get("name")}
        return _json_response(request, *await request.app.state.pool.answer(kind, _canonical_text(content)))

    return endpoint


def _post_endpoint(kind: str) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that answers a state."""

    async def endpoint(request: Request) -> Response:
        content = await _json_content(request)
        return _json_response(
            request,
            *await request.app.state.pool.answer(kind, _canonical_text(content), request.is_disconnected),
        )

    return endpoint


async def _json_content(request: Request) -> Mapping[str, Any]:
    """Return the JSON object of a request."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise HTTPException(415, f"Content-Type must be {JSON}")
    try:
        content = parse_json(await request.body())
    except InputError as error:
        raise HTTPException(400, str(error)) from None
    if not isinstance(content, dict):
        raise HTTPException(400, "the request must be a JSON object: a state")
    return content


def _canonical_text(content: Mapping[str, Any]) -> str:
    """Return a request as canonical JSON."""
    return json.dumps(content, sort_keys=True)


def _json_response(request: Request, status: int, body: bytes) -> Response:
    """Return a JSON response."""
    if status != 200:
        retry = {"Retry-After": str(RETRY_SECONDS)} if status == 503 else {}
        return Response(body, status, retry, JSON)
    return _response(request, Body(body, JSON))


def _response(request: Request, body: Body) -> Response:
    """Return a response: compressed for remote clients, empty where the browser has the content already."""
    headers = {"ETag": body.etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if body.etag in request.headers.get("if-none-match", ""):
        return Response(None, 304, headers)
    remote = request.client is None or request.client.host not in LOCAL_CLIENTS
    compressed = body.compressed if remote and "gzip" in request.headers.get("accept-encoding", "") else None
    if compressed is None:
        return Response(body.content, 200, headers, body.media_type)
    return Response(compressed, 200, headers | {"Content-Encoding": "gzip"}, body.media_type)


async def _refused(request: Request, error: Exception) -> Response:
    """Return the response to a request that the server does not serve."""
    status, detail = getattr(error, "status_code", 400), getattr(error, "detail", "")
    return Response(failure(f"{detail}"), status, getattr(error, "headers", None), JSON)


async def _unusable(request: Request, error: Exception) -> Response:
    """Return the response to invalid input."""
    return Response(failure(str(error), getattr(error, "problems", None)), 422, None, JSON)


async def _busy(request: Request, error: Exception) -> Response:
    """Return the response while too many requests wait."""
    body = failure(f"the server is busy: too many searches wait; try again in {RETRY_SECONDS} s")
    return Response(body, 503, {"Retry-After": str(RETRY_SECONDS)}, JSON)


async def _client_gone(request: Request, error: Exception) -> Response:
    """Return the response to a client that disconnected while sending."""
    return Response(failure("the request was not sent to its end"), 400, None, JSON)
