"""Sphinx extension: writes the pages that follow from declarations, before pages are read.

Every generator returns the text of its pages; `generated/` holds them and is not committed.
"""

from pathlib import Path

from sphinx.application import Sphinx

from generators import (
    benchmarks,
    commands,
    gallery,
    links,
    offline,
    project_pages,
    public_names,
    run,
)

GENERATORS = (commands, public_names, benchmarks, project_pages, gallery)


def write_pages(app: Sphinx) -> None:
    """Write the figures and the pages in ``generated/``; unchanged files stay as they are."""
    folder = Path(app.srcdir) / "generated"
    run.write_figures(folder / "run")
    texts = {
        folder / n: t for generator in GENERATORS for n, t in generator.pages(folder).items()
    }
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in [*folder.glob("api/*.*"), *folder.glob("commands/*.*"), *folder.glob("*.md")]:
        if path not in texts:  # of an earlier build
            path.unlink()


def adapt_source(app: Sphinx, docname: str, source: list[str]) -> None:
    """Complete a page that is also read on GitHub by what only the site has."""
    text = source[0]
    text = gallery.with_declaration(docname, text, Path(app.srcdir))
    text = public_names.with_links(docname, text)
    text = project_pages.with_further_pages(docname, text, Path(app.srcdir))
    source[0] = links.within_site(text, docname, Path(app.srcdir))


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the generators."""
    app.connect("builder-inited", write_pages, priority=100)  # before the notebooks run
    app.connect("source-read", adapt_source)
    app.connect("autodoc-process-docstring", public_names.with_bars)
    app.connect("autodoc-process-signature", public_names.with_factories)
    app.connect("build-finished", offline.check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
