"""The site works without a network connection: no page loads a file from elsewhere."""

import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

_LOADED = re.compile(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(https?://[^"]+)"')


def check(app: Sphinx, exception: Exception | None) -> None:
    """Check every page that was written.

    Raises:
        ExtensionError: if a page loads a script, a style, a font or an image from a server.
    """
    if exception is not None:
        return
    for page in sorted(Path(app.outdir).rglob("*.html")):
        if remote := _LOADED.search(page.read_text("utf-8")):
            name = page.relative_to(app.outdir)
            raise ExtensionError(f"{name} must load only files of the site, got {remote[1]}")
