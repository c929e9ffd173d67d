"""Terms of a report with an explanation of one line, linked where a part of the page begins."""

import re
import tomllib
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import zip_longest

from markupsafe import Markup, escape

from visprism.core.files import slug
from visprism.estimates.questions import PAPER_CLAIMS


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

_CLAIM = re.compile(rf"\bclaim ({'|'.join(PAPER_CLAIMS)})\b")
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
        """The text as HTML; claims, and terms that the part does not have yet, are links."""
        pieces = _CLAIM.split(text)  # texts and codes of claims in turn
        claims = [
            _link(code, f"Claim {code} of Park & Kim (2022): {of.statement}", f"claim {code}")
            for code, of in ((code, PAPER_CLAIMS[code]) for code in pieces[1::2])
        ]
        texts = [self._with_terms(piece, part) for piece in pieces[::2]]
        return Markup("").join(
            x for pair in zip_longest(texts, claims, fillvalue="") for x in pair
        )

    def _with_terms(self, text: str, part: str) -> Markup:
        pieces, end = [], 0
        seen = self.used.setdefault(part, set())
        for match in _BY_TEXT.finditer(text):
            term = TERMS[int((match.lastgroup or "t0")[1:])]
            if term.name in seen:
                continue
            seen.add(term.name)
            link = _link(term.anchor, f"{term.name}: {term.meaning}", match[0])
            pieces += [escape(text[end : match.start()]), link]
            end = match.end()
        return Markup("").join([*pieces, escape(text[end:])])

    @property
    def terms(self) -> list[Term]:
        """The terms that the page has so far."""
        names = set().union(*self.used.values())
        return [term for term in TERMS if term.name in names]


def _link(anchor: str, tip: str, text: str) -> Markup:
    return Markup('<a class="term" href="#{}" data-tip="{}">{}</a>').format(anchor, tip, text)
