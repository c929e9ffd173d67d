"""The server: routes, and what they answer."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route
from starlette.types import ASGIApp

from visprism.app.forms import PRESETS, catalog
from visprism.app.guard import HOSTS, Guard, read_body, read_json
from visprism.app.library import Library
from visprism.app.live.panels import PANELS, looked_at
from visprism.app.live.pool import Pool
from visprism.app.renderer import Renderer, stored_page
from visprism.app.settings import Settings
from visprism.app.uploads import store_checkpoint, store_image
from visprism.core.errors import InputError, OutputError, printable, shortage
from visprism.core.files import is_of_user
from visprism.one_image.page import script_hash
from visprism.report.page import script_hashes, style_sheet, templates

_REQUEST_SECONDS = 15.0  # for the body of a request that is no upload
_HEARTBEAT = 15.0  # seconds between lines of a stream, by which a lost client is noticed
_NO_STUDY = "there is no such study, or its folder was deleted"
_SCRIPTS = frozenset({"app.js", "live.js", "shared.js"})
_REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'; script-src {}"
)


async def _answer(request: Request, error: Exception) -> Response:
    """An error as one sentence: JSON for scripts, a page where a browser opens an address."""
    status, headers = 400, None
    match error:
        case HTTPException():
            sentence, status, headers = error.detail, error.status_code, error.headers
        case InputError() | OutputError():
            sentence = printable(str(error))
        case _ if lacking := shortage(error):
            sentence, status = lacking, 503
        case RecursionError():
            sentence = "a file of the study is nested too deep"
        case _:
            sentence, status = printable(f"{type(error).__name__}: {error}"), 500
    if "text/html" not in request.headers.get("accept", ""):
        return JSONResponse({"error": sentence}, status, headers)
    root = "/".join([".."] * (request.scope["path"].count("/") - 1)) or "."
    page = _page("error.html", root=root, sentence=sentence)
    return HTMLResponse(page.body, status, headers)


_ERRORS = (HTTPException, InputError, OutputError, MemoryError, RecursionError)


class Server:
    """The state of the app, and its endpoints."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.library = Library(settings)
        self.renderer = Renderer()
        self.pool = Pool(settings)
        self._live = ThreadPoolExecutor(1, thread_name_prefix="live")  # one model at a time

    def app(self) -> ASGIApp:
        """The application, behind its guard."""
        routes = [
            Route("/", self.home),
            Route("/live", self.live),
            Route("/look", self.look),
            Route("/compare", self.compare),
            Route("/study/{name}", self.study),
            Route("/study/{name}/report", self.report),
            Route("/study/{name}/{export:path}", self.export),
            Route("/static/{name}", self.static),
            Route("/api/catalog", self.catalog),
            Route("/api/studies", self.studies),
            Route("/api/studies", self.start, methods=["POST"]),
            Route("/api/studies/{name}/events", self.events),
            Route("/api/studies/{name}/summary", self.summary),
            Route("/api/studies/{name}/{action}", self.act, methods=["POST"]),
            Route("/api/images/{set}/{name}", self.upload_image, methods=["POST"]),
            Route("/api/checkpoints/{name}", self.upload_checkpoint, methods=["POST"]),
            Route("/api/live/{panel}", self.answer, methods=["POST"]),
        ]
        app = Starlette(
            routes=routes,
            lifespan=self._lifespan,
            middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS)],
            exception_handlers={kind: _answer for kind in (*_ERRORS, Exception)},
        )
        return Guard(app, self.settings.token)

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await self.library.close()
            self.renderer.close()
            self._live.shutdown(wait=False, cancel_futures=True)

    async def home(self, request: Request) -> Response:
        """Studies, and the form of a new one."""
        return _page("home.html", root=".", presets=PRESETS)

    async def live(self, request: Request) -> Response:
        """The live panels."""
        return _page("live.html", root=".")

    async def look(self, request: Request) -> Response:
        """One page on what models do with one image, as `visprism look` makes it."""
        try:
            asked = json.loads(request.query_params.get("request", "{}"))
            subjects, index = list(asked["subjects"]), asked["image"]
        except (ValueError, KeyError, TypeError) as error:
            raise InputError("request must be JSON with subjects and an image") from error
        page = partial(looked_at, self.pool, subjects, index)
        loop = asyncio.get_running_loop()
        html = await loop.run_in_executor(self._live, page)
        headers = {"content-security-policy": _REPORT_POLICY.format(script_hash())}
        return HTMLResponse(html, headers=headers)

    async def study(self, request: Request) -> Response:
        """One study: its progress and its report."""
        name = request.path_params["name"]
        study = await self.library.study(await self._folder(name))
        return _page("study.html", root="..", study=study)

    async def compare(self, request: Request) -> Response:
        """The answers of two studies in one table, and both reports side by side."""
        names = request.query_params.getlist("study")
        if len(names) != 2:
            raise InputError(f"study must be given twice to be compared, got {len(names)}")
        folders = [await self._folder(name) for name in names]
        studies = [
            await self.renderer.summary(folder) | {"study": await self.library.study(folder)}
            for folder in folders
        ]
        by_label = [{line["label"]: line for line in study["lines"]} for study in studies]
        rows = [
            (label, [(s, lines.get(label)) for s, lines in zip(studies, by_label, strict=True)])
            for label in by_label[0] | by_label[1]
        ]
        return _page("compare.html", root=".", studies=studies, rows=rows)

    async def summary(self, request: Request) -> Response:
        """Models, number of images and the lines of a study at a glance."""
        name = request.path_params["name"]
        return JSONResponse(await self.renderer.summary(await self._folder(name)))

    async def report(self, request: Request) -> Response:
        """The report of the results that a study has by now: as it is stored, or drawn."""
        folder = await self._folder(request.path_params["name"])
        headers = {"content-security-policy": _REPORT_POLICY.format(script_hashes())}
        if (stored := await asyncio.to_thread(stored_page, folder)) is not None:
            headers["x-page"] = "stored"
            return FileResponse(stored, media_type="text/html", headers=headers)
        figures = request.query_params.get("figures") != "no"
        page = await self.renderer.page(folder, figures=figures)
        return HTMLResponse(page, headers=headers)

    async def export(self, request: Request) -> Response:
        """``study.md`` or ``results.json``, or a table that a stored report links."""
        name = request.path_params["export"]
        folder = await self._folder(request.path_params["name"])
        if re.fullmatch(r"results/[\w.-]+\.csv", name) and is_of_user(folder / name):
            return FileResponse(folder / name, media_type="text/csv")
        if name not in ("study.md", "results.json"):
            raise HTTPException(404, "not found")
        text = await self.renderer.export(folder, name)
        disposition = {"content-disposition": f'attachment; filename="{name}"'}
        kind = "application/json" if name.endswith("json") else "text/markdown"
        return Response(text, media_type=kind, headers=disposition)

    async def static(self, request: Request) -> Response:
        """Scripts and the style sheet."""
        name = request.path_params["name"]
        if name == "style.css":
            return Response(style_sheet() + _text("app.css"), media_type="text/css")
        if name not in _SCRIPTS:
            raise HTTPException(404, "not found")
        return Response(_text(name), media_type="text/javascript")

    async def catalog(self, request: Request) -> Response:
        """What the forms offer."""
        return JSONResponse(await asyncio.to_thread(catalog, self.settings))

    async def studies(self, request: Request) -> Response:
        """Every study with its state."""
        return JSONResponse(await self.library.studies())

    async def start(self, request: Request) -> Response:
        """Start a study."""
        form = await self._json(request)
        return JSONResponse({"name": self.library.start(form)}, 201)

    async def act(self, request: Request) -> Response:
        """Cancel or resume a study."""
        name, action = request.path_params["name"], request.path_params["action"]
        await self._json(request)
        if action == "cancel":
            await self.library.cancel(name)
        elif action == "resume":
            await self.library.resume(name)
        else:
            raise HTTPException(404, "not found")
        return JSONResponse(await self.library.state(name))

    async def events(self, request: Request) -> Response:
        """The state of a study as server-sent events, until it ends."""
        name = request.path_params["name"]
        await self.library.state(name)
        job = self.library.jobs.get(name)
        changes = self.library.followed(name) if job is None else job.changes()
        headers = {"x-accel-buffering": "no"}
        return StreamingResponse(
            _stream(changes), media_type="text/event-stream", headers=headers
        )

    async def upload_image(self, request: Request) -> Response:
        """Store one image of a set."""
        limits = self.settings.limits
        body = await read_body(request, limits.image_bytes, limits.upload_seconds)
        names = request.path_params["set"], request.path_params["name"]
        path = await asyncio.to_thread(store_image, self.settings, *names, body)
        return JSONResponse({"data": f"uploaded: {path.parent.name}"}, 201)

    async def upload_checkpoint(self, request: Request) -> Response:
        """Store one checkpoint."""
        limits = self.settings.limits
        body = await read_body(request, limits.checkpoint_bytes, limits.upload_seconds)
        name = request.path_params["name"]
        path = await asyncio.to_thread(store_checkpoint, self.settings, name, body)
        return JSONResponse({"checkpoint": f"{path.parent.name}/{path.name}"}, 201)

    async def answer(self, request: Request) -> Response:
        """The answer of a live panel."""
        name = request.path_params["panel"]
        if name not in PANELS:
            raise HTTPException(404, "not found")
        values = await self._json(request)
        panel = partial(self._panel, name, values)
        loop = asyncio.get_running_loop()
        return JSONResponse(await loop.run_in_executor(self._live, panel))

    def _panel(self, name: str, values: dict[str, Any]) -> dict[str, Any]:
        """In the thread of live panels."""
        try:
            return PANELS[name](self.pool.specimen(values), values)
        except RuntimeError as error:  # of torch, such as lack of memory
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise InputError(f"the model failed: {reason}") from error

    async def _json(self, request: Request) -> dict[str, Any]:
        return await read_json(request, self.settings.limits.request_bytes, _REQUEST_SECONDS)

    async def _folder(self, name: str) -> Path:
        folder = await self.library.listing.folder(name)
        if folder is None:
            raise HTTPException(404, _NO_STUDY)
        return folder


async def _stream(states: AsyncIterator[dict[str, Any]]) -> AsyncIterator[str]:
    """States as events, at most a few per second, with a comment where nothing happens."""
    upcoming = asyncio.ensure_future(anext(states, None))
    try:
        while True:
            ready, _ = await asyncio.wait([upcoming], timeout=_HEARTBEAT)
            if not ready:
                yield ": waiting\n\n"
                continue
            state = upcoming.result()
            if state is None:
                return
            yield f"data: {json.dumps(state)}\n\n"
            await asyncio.sleep(0.1)
            upcoming = asyncio.ensure_future(anext(states, None))
    finally:
        upcoming.cancel()  # the client has left


def _page(name: str, **values: Any) -> Response:
    return HTMLResponse(templates("visprism.app").get_template(name).render(**values))


def _text(name: str) -> str:
    return (files("visprism.app") / "templates" / name).read_text(encoding="utf-8")
