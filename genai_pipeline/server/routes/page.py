"""``/``: a page to try the server from, its files below ``/page/``.

The files need no key and hold nothing secret; what they then ask for needs one like every other request. The policy
lets the page load only what comes from here, and no text become markup (``require-trusted-types-for``).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from genai_pipeline.server.api_errors import ApiError

FOLDER: Final = Path(__file__).parent.parent / "page"
TYPES: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",  # keep it, and ask each time whether it changed
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the page as it is sent."""

    content: bytes
    media_type: str
    etag: str

    @staticmethod
    def read(path: Path) -> PageFile:
        """A file from disk."""
        content = path.read_bytes()
        return PageFile(content, TYPES[path.suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"')

    def response(self, request: Request) -> Response:
        """The file, or word that what the browser has is still right."""
        headers = {**HEADERS, "etag": self.etag}
        known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
        if self.etag in known:
            return Response(status_code=304, headers=headers)
        return Response(self.content, headers=headers, media_type=self.media_type)


FILES: Final = {path.name: PageFile.read(path) for path in sorted(FOLDER.iterdir()) if path.suffix in TYPES}


async def index(request: Request) -> Response:
    """The page itself."""
    return FILES["index.html"].response(request)


async def file(request: Request) -> Response:
    """One of the files it consists of."""
    found = FILES.get(request.path_params["name"])
    if found is None:
        raise ApiError(404, "there is nothing at this path", code="not_found")
    return found.response(request)


ROUTES = [Route("/", index), Route("/page/{name}", file)]
OPEN = ("/", *(f"/page/{name}" for name in FILES))
