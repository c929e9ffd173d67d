"""Claims of Park & Kim (2022), "How Do Vision Transformers Work?", ICLR, in our words."""

from collections.abc import Iterable

from visprism.claims.claim import Claim, Hypothesis
from visprism.claims.decisions import Direction
from visprism.claims.runs import END, WARMUP
from visprism.analyses.predictions.frequency_noise import EQUAL_ENERGY, PAPER
from visprism.results.kind_summary import SCALE_FREE, TO_LOWEST, TO_MEAN, VARIANCE
from visprism.results.paper_claims import PAPER_CLAIMS

_CLEAN, _AUGMENTED = "NLL of clean images", "NLL + L2 of augmented images"
_KINDS: dict[str, Direction] = {"attention": "lower", "mlp": "higher", "conv": "higher"}
_MIXED = {"vit": ("attention", "mlp"), "cnn": ("conv",), "alternet": ("attention", "conv")}


def _at(quantity: str, objective: str, phase: str) -> str:
    """Key of a Hessian quantity."""
    return f"{quantity}, {objective}{'' if phase == END else f', {phase}'}"


def _curvature(
    quantities: Iterable[str], *pairs: tuple[str, Direction, str]
) -> tuple[Hypothesis, ...]:
    """Hypotheses about arms, under each objective and at each phase."""
    return tuple(
        Hypothesis(
            arm, direction, _at(quantity, objective, phase), control, f"{objective}, {phase}"
        )
        for phase in (WARMUP, END)
        for objective in (_CLEAN, _AUGMENTED)
        for quantity in quantities
        for arm, direction, control in pairs
    )


def _blocks(change: str, protocol: str) -> tuple[Hypothesis, ...]:
    """How blocks of each kind change feature maps."""
    return tuple(
        Hypothesis(arm, _KINDS[kind], f"{kind} blocks, change of {change}", "", protocol)
        for arm, kinds in _MIXED.items()
        for kind in kinds
    )


def _claim(code: str, hypotheses: tuple[Hypothesis, ...]) -> Claim:
    """A claim of the paper with what decides it."""
    stated = PAPER_CLAIMS[code]
    return Claim(code, stated.statement, stated.source, hypotheses)


CLAIMS = {
    claim.code: claim
    for claim in (
        _claim(
            "C1",
            _curvature(["APE"], ("vit", "lower", "cnn"), ("alternet", "lower", "cnn")),
        ),
        _claim(
            "C2",
            _curvature(["NEP"], ("vit", "higher", "cnn"), ("vit 10%", "higher", "vit")),
        ),
        _claim(
            "C3",
            _curvature(["NEP"], ("vit, GAP", "lower", "vit"), ("vit, SAM", "lower", "vit")),
        ),
        _claim(
            "C4",
            tuple(
                Hypothesis(
                    f"vit {fraction}{suffix}",
                    "higher",
                    "NLL of training images",
                    "vit",
                    protocol,
                )
                for suffix, protocol in (
                    ("", "the same number of epochs"),
                    (", same updates", "the same number of updates"),
                )
                for fraction in ("10%", "30%")
            ),
        ),
        _claim(
            "C5",
            tuple(
                Hypothesis(f"vit, {size} attention", direction, quantity, "vit, full attention")
                for size in ("3x3", "5x5")
                for quantity, direction in (
                    ("test accuracy", "higher"),
                    ("NLL of training images", "lower"),
                )
            ),
        ),
        _claim(
            "C6",
            (
                *_blocks(TO_MEAN, "relative to the mean, as in the paper"),
                *_blocks(TO_LOWEST, "relative to the lowest frequency"),
            ),
        ),
        _claim(
            "C7",
            tuple(
                Hypothesis(
                    arm,
                    direction,
                    f"accuracy drop, high minus low frequencies, {noise} noise",
                    "",
                    protocol,
                )
                for noise, protocol in (
                    (PAPER, "the paper's noise"),
                    (EQUAL_ENERGY, "equal energy in each band"),
                )
                for arm, direction in (("vit", "lower"), ("cnn", "higher"))
            ),
        ),
        _claim(
            "C8",
            (*_blocks(VARIANCE, "variance"), *_blocks(SCALE_FREE, "variance over mean square")),
        ),
        _claim(
            "C9",
            tuple(
                Hypothesis(arm, "higher", "block structure of CKA")
                for arm in ("cnn", "multi-stage transformer")
            ),
        ),
        _claim(
            "C10",
            (
                Hypothesis("cnn", "lower", "accuracy drop, late minus early conv of a stage"),
                Hypothesis(
                    "multi-stage transformer",
                    "higher",
                    "accuracy drop, late minus early attention of a stage",
                ),
            ),
        ),
        _claim(
            "C11",
            (
                Hypothesis("alternet", "higher", "test accuracy", "cnn", "accuracy"),
                Hypothesis(
                    "alternet 10%",
                    "higher",
                    "test accuracy",
                    "cnn 10%",
                    "accuracy, little data",
                ),
                Hypothesis(
                    "alternet 30%",
                    "higher",
                    "test accuracy",
                    "cnn 30%",
                    "accuracy, little data",
                ),
                Hypothesis(
                    "alternet", "higher", "accuracy on corrupted images", "cnn", "corruptions"
                ),
                Hypothesis("alternet", "lower", _at("APE", _CLEAN, END), "cnn", "eigenvalues"),
            ),
        ),
        _claim(
            "C12",
            (
                *(
                    Hypothesis(
                        f"{arm}, strong augmentation",
                        "lower",
                        "signed ECE",
                        "",
                        "signed ECE below 0",
                    )
                    for arm in ("cnn", "vit")
                ),
                *(
                    Hypothesis(
                        f"{arm}, strong augmentation",
                        "lower",
                        "signed ECE",
                        f"{arm}, weak augmentation",
                        "lower than with weak augmentation",
                    )
                    for arm in ("cnn", "vit")
                ),
            ),
        ),
        _claim(
            "C13",
            _curvature(["NEP", "APE"], ("vit, many heads", "lower", "vit, few heads")),
        ),
        _claim(
            "C14",
            (Hypothesis("vit, small patches", "lower", "test accuracy", "vit"),),
        ),
        _claim(
            "C15",
            tuple(
                Hypothesis("vit", "lower", quantity, "cnn", protocol)
                for quantity, protocol in (
                    ("increase of NLL + L2 on a grid", "NLL + L2, frozen BatchNorm"),
                    (
                        "increase of the NLL at distance 0.5, frozen BatchNorm",
                        "NLL, frozen BatchNorm",
                    ),
                    (
                        "increase of the NLL at distance 0.5, reestimated BatchNorm",
                        "NLL, re-estimated BatchNorm",
                    ),
                )
            ),
        ),
        _claim(
            "C16",
            tuple(
                Hypothesis(
                    "vit", direction, _at("largest eigenvalue", objective, phase), "cnn", phase
                )
                for phase in (WARMUP, END)
                for objective, direction in ((_CLEAN, "higher"), (_AUGMENTED, "lower"))
            ),
        ),
    )
}
