"""Screenshots of the report and of the app for the docs, by Playwright with Chromium.

    python docs/make_screenshots.py
    python docs/make_screenshots.py --site DIR    # the site in docs/_build/html, into DIR

Writes palette PNGs into docs/figures: the report and the live page, light, dark and narrow, and
the form of a new study; and the figures of the demo on pages of analyses. A demo study is
made first, which takes up to four minutes.
"""

import argparse
import io
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copy, which
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

FIGURES = Path(__file__).parent / "figures"
SITE = Path(__file__).parent / "_build" / "html"
# Whether all pictures are there, pictures of studies too, which the server draws first.
_DRAWN = "[...document.images].every((image) => image.complete && image.naturalWidth)"
VARIANTS = {  # ending of the file: color scheme, width, height
    "": ("light", 1280, 800),
    "-dark": ("dark", 1280, 800),
    "-narrow": ("light", 420, 1400),
}
COLORS, WIDTH = 256, 900


def save(page: Page, name: str) -> None:
    """Write what the window shows as a small PNG."""
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    if picture.width > WIDTH:
        size = (WIDTH, round(WIDTH * picture.height / picture.width))
        picture = picture.resize(size, Image.Resampling.LANCZOS)
    picture.quantize(COLORS, Image.Quantize.MEDIANCUT, kmeans=1).save(
        FIGURES / name, optimize=True
    )


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """The address of the app with a study."""
    out = folder / "studies"
    command = [
        sys.executable,
        "-m",
        "visprism",
        "view",
        str(folder / "demo"),
        "--out",
        str(out),
    ]
    process = subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[1]
    finally:
        process.terminate()
        process.wait()


def shoot(browser: Browser, report: Path, address: str) -> None:
    """Every page in every variant."""
    pages = {
        "report": (report.as_uri(), "table.glance"),
        "app-live": (f"{address}live", "[data-ready] #curves svg"),
        "app-study": (address, "form[data-ready]"),
    }
    for name, (url, ready) in pages.items():
        for ending, (scheme, width, height) in VARIANTS.items():
            page = browser.new_page(
                viewport={"width": width, "height": height},
                color_scheme=scheme,
                bypass_csp=True,  # to ask whether pictures are there
            )
            page.goto(url)
            page.wait_for_selector(ready, timeout=120_000)
            page.wait_for_function(_DRAWN, timeout=120_000)
            page.wait_for_timeout(2000)
            save(page, f"{name}{ending}.png")
            page.close()


def shoot_site(browser: Browser, folder: Path) -> None:
    """The first page, the gallery and a page of an analysis, light, dark and narrow."""
    pages = {"landing": "index", "gallery": "generated/gallery", "analysis": "analyses/fourier"}
    for name, path in pages.items():
        for ending, (scheme, width, height) in VARIANTS.items():
            page = browser.new_page(
                viewport={"width": width, "height": height}, color_scheme=scheme
            )
            page.goto((SITE / f"{path}.html").as_uri())
            page.wait_for_timeout(500)
            page.screenshot(path=folder / f"site-{name}{ending}.png")
            page.close()


def main() -> None:
    """Make the study, start the app, and write the screenshots."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--site", type=Path, metavar="DIR", help="pictures of the site only")
    site = parser.parse_args().site
    chromium = which("chromium") or which("chromium-browser")
    with TemporaryDirectory() as text, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        if site is not None:
            shoot_site(browser, site)
        else:
            folder = Path(text)
            demo = [sys.executable, "-m", "visprism", "demo", "--minutes", "3"]
            subprocess.run([*demo, "--out", str(folder / "demo")], check=True)
            for file in (folder / "demo" / "figures").iterdir():
                if (FIGURES / file.name).exists():
                    copy(file, FIGURES)
            with server(folder) as address:
                shoot(browser, folder / "demo" / "report.html", address)
        browser.close()


if __name__ == "__main__":
    main()
