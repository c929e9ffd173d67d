"""Terms of a report with an explanation of one line, linked where a part of the page begins."""

import re
import tomllib
from dataclasses import dataclass, field
from importlib.resources import files

from markupsafe import Markup, escape

from visprism.core.files import slug


@dataclass(frozen=True)
class Term:
    """A term, what it means, and the page of the documentation that defines it."""

    name: str
    meaning: str
    page: str  # in docs/
    pattern: str = ""  # of its spellings in texts; "" for the name itself

    @property
    def anchor(self) -> str:
        """The anchor of its entry in the page."""
        return f"term-{slug(self.name)}"


_FILE = files("visprism.report") / "templates" / "terms.toml"
TERMS = tuple(Term(**t) for t in tomllib.loads(_FILE.read_text(encoding="utf-8"))["term"])

_BY_TEXT = re.compile(
    "|".join(
        rf"(?P<t{i}>(?<![\w-])(?:{t.pattern or re.escape(t.name)})(?![\w-]))"
        for i, t in enumerate(TERMS)
    )
)


@dataclass
class TermLinks:
    """Links terms to their explanation where they first occur in a part of a page."""

    used: dict[str, set[str]] = field(default_factory=dict)  # by part: names of terms

    def __call__(self, text: str, part: str) -> Markup:
        """The text as HTML; terms that the part does not have yet are links."""
        pieces, end = [], 0
        seen = self.used.setdefault(part, set())
        for match in _BY_TEXT.finditer(text):
            term = TERMS[int((match.lastgroup or "t0")[1:])]
            if term.name in seen:
                continue
            seen.add(term.name)
            link = Markup('<a class="term" href="#{}" data-tip="{}">{}</a>').format(
                term.anchor, f"{term.name}: {term.meaning}", match[0]
            )
            pieces += [escape(text[end : match.start()]), link]
            end = match.end()
        return Markup("").join([*pieces, escape(text[end:])])

    @property
    def terms(self) -> list[Term]:
        """The terms that the page has so far."""
        names = set().union(*self.used.values())
        return [term for term in TERMS if term.name in names]
