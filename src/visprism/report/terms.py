"""Terms of a report with an explanation of one line, linked where a part of the page begins."""

import re
from dataclasses import dataclass, field
from itertools import zip_longest

from markupsafe import Markup, escape

from visprism.core.files import slug
from visprism.results.paper_claims import PAPER_CLAIMS


@dataclass(frozen=True)
class Term:
    """A term, what it means, and the page of the documentation that defines it."""

    name: str
    meaning: str
    page: str  # in docs/
    pattern: str = ""  # of its spellings in texts; "" for the name itself

    @property
    def anchor(self) -> str:
        """Of its entry in the page."""
        return f"term-{slug(self.name)}"


TERMS = (
    Term(
        "95% interval",
        "The range that contains the true value in 95% of repetitions, for example of drawing "
        "other images.",
        "numbers.md",
        r"95\s?% intervals?",
    ),
    Term(
        "paired",
        "Both models are measured on the same images, and compared image by image.",
        "numbers.md",
    ),
    Term(
        "NLL",
        "Negative log-likelihood: minus the logarithm of the probability of the true class. "
        "Lower is better.",
        "analyses/calibration.md",
    ),
    Term(
        "nats",
        "Unit of logarithms to base e: one nat less NLL is a probability 2.7 times as large.",
        "analyses/calibration.md",
    ),
    Term(
        "ECE",
        "Expected calibration error: mean distance of confidence and accuracy. The debiased "
        "ECE corrects for the number of images; the signed ECE is positive if overconfident.",
        "analyses/calibration.md",
        r"(?:debiased |signed )?ECE",
    ),
    Term(
        "AURC",
        "Area under the risk-coverage curve: the mean error rate of the most confident images, "
        "over all fractions of images. Lower is better.",
        "analyses/calibration.md",
    ),
    Term(
        "Cut-off metrics",
        "freq: fraction of images whose confidence is above the cut-off; acc: their accuracy; "
        "unc: fraction of the wrong predictions that are not above it; iou: correct images of "
        "a class over those that are of it or predicted as it, mean over classes.",
        "analyses/calibration.md",
        r"freq|unc|iou",
    ),
    Term(
        "π rad/pixel",
        "Unit of spatial frequency: 1 π rad/pixel, the Nyquist frequency, is a period of two "
        "pixels.",
        "analyses/frequency-noise.md",
    ),
    Term(
        "normalized depth",
        "Place of a block from 0, the first, to 1, the last.",
        "anatomy.md",
        r"[Nn]ormalized depth",
    ),
    Term(
        "RMS",
        "Root mean square of the noise, for pixel values from 0 to 1.",
        "analyses/frequency-noise.md",
    ),
    Term(
        "stage",
        "Consecutive blocks between two reductions of the grid of the feature map.",
        "anatomy.md",
        r"stages?",
    ),
    Term(
        "temperature",
        "The number by which logits are divided before the softmax. Above 1 it lowers the "
        "confidence.",
        "analyses/calibration.md",
        r"[Tt]emperature",
    ),
    Term(
        "low-pass",
        "A low-pass filter lowers high spatial frequencies relative to low ones; a high-pass "
        "filter raises them.",
        "analyses/fourier.md",
        r"(?:low|high)-pass",
    ),
    Term(
        "MSA",
        "Multi-head self-attention, the operation of an attention block.",
        "analyses/attention.md",
        r"MSAs?",
    ),
    Term(
        "high-frequency log amplitude",
        "Logarithm of the Fourier amplitude of a feature map at the highest frequency, minus "
        "that at a reference frequency.",
        "analyses/fourier.md",
    ),
    Term(
        "identity ablation",
        "A block is replaced by the identity, so that its input passes on unchanged, without "
        "training again. The accuracy drop is how much the model depends on it.",
        "analyses/ablation.md",
        r"identity ablation|replaced by the identity",
    ),
    Term(
        "Hessian eigenvalue",
        "Curvature of the loss along one direction of the weights. Large values are sharp "
        "directions, negative values bend downward.",
        "analyses/hessian.md",
        r"Hessian eigenvalues?",
    ),
    Term(
        "APE",
        "Average of the positive ones among the leading Hessian eigenvalues. Lower is flatter.",
        "analyses/hessian.md",
    ),
    Term(
        "NEP",
        "Negative eigenvalue proportion: the fraction of the leading Hessian eigenvalues, by "
        "magnitude, that are negative.",
        "analyses/hessian.md",
    ),
    Term(
        "SAM",
        "Sharpness-aware minimization: the loss increase one step along the gradient, at a "
        "fixed distance in the space of the weights.",
        "analyses/sharpness.md",
        r"SAM|along the gradient",
    ),
    Term(
        "BatchNorm re-estimated",
        "The running statistics of BatchNorm are computed again after the weights are changed; "
        "frozen ones no longer fit the changed weights.",
        "analyses/landscape.md",
        r"BatchNorm (?:re-estimated|frozen)",
    ),
    Term(
        "CKA",
        "Centered kernel alignment, a similarity of two sets of features: 1 for equal ones, "
        "about 0 for unrelated ones. Debiased CKA corrects for the number of images.",
        "analyses/cka.md",
    ),
    Term(
        "Cohen's kappa",
        "Agreement of two models in which images they classify correctly, beyond chance: 0 for "
        "independent errors, 1 for the same errors.",
        "analyses/calibration.md",
    ),
    Term(
        "NC1",
        "Variation of features within classes over that between classes. Near 0 the features "
        "of a class have collapsed to a point.",
        "analyses/class-separability.md",
    ),
    Term(
        "NC2, NC3, NC4",
        "Distance of the class means from a simplex (NC2), of the weights of the classifier "
        "from the class means (NC3), and the fraction of images that the model and the nearest "
        "class mean assign to different classes (NC4).",
        "analyses/class-separability.md",
        r"NC[234]",
    ),
    Term(
        "RankMe",
        "Effective rank of the features over images: exp of the entropy of the normalized "
        "singular values.",
        "analyses/class-separability.md",
    ),
    Term(
        "alpha-ReQ",
        "Exponent of the decay of the eigenvalues of the covariance of features.",
        "analyses/class-separability.md",
    ),
    Term(
        "logit lens",
        "The model's own classifier, applied to the features of an earlier block.",
        "analyses/readout.md",
    ),
    Term(
        "effective rank",
        "Number of directions that the features of a block use, as a fraction of those "
        "available.",
        "analyses/singular-values.md",
    ),
    Term(
        "ridge probe",
        "A linear classifier that is fitted to the features of a block, the model unchanged.",
        "analyses/readout.md",
    ),
    Term(
        "outlier tokens",
        "Tokens whose norm is far above that of the others, often in the background.",
        "analyses/token-norms.md",
    ),
)

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
        claims = [_claim_link(code) for code in pieces[1::2]]
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
            pieces += [escape(text[end : match.start()]), _link(term, match[0])]
            end = match.end()
        return Markup("").join([*pieces, escape(text[end:])])

    @property
    def terms(self) -> list[Term]:
        """The terms that the page has so far."""
        names = set().union(*self.used.values())
        return [term for term in TERMS if term.name in names]


def _claim_link(code: str) -> Markup:
    tip = f"Claim {code} of Park & Kim (2022): {PAPER_CLAIMS[code].statement}"
    return Markup('<a class="term" href="#{}" data-tip="{}">claim {}</a>').format(
        code, tip, code
    )


def _link(term: Term, text: str) -> Markup:
    return Markup('<a class="term" href="#{}" data-tip="{}">{}</a>').format(
        term.anchor, f"{term.name}: {term.meaning}", text
    )
