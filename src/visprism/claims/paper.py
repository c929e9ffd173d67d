"""Claims of Park & Kim (2022), "How Do Vision Transformers Work?", ICLR, in our words."""

from collections.abc import Iterable

from visprism.claims.claim import Claim, Hypothesis
from visprism.claims.decisions import Direction
from visprism.claims.runs import END, WARMUP
from visprism.results.frequency_contrasts import EQUAL_ENERGY, PAPER
from visprism.results.kind_summary import SCALE_FREE, TO_LOWEST, TO_MEAN, VARIANCE

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


CLAIMS = {
    claim.code: claim
    for claim in (
        Claim(
            "C1",
            "MSAs reduce the magnitude of Hessian eigenvalues: they flatten the loss",
            "sec. 2",
            _curvature(["APE"], ("vit", "lower", "cnn"), ("alternet", "lower", "cnn")),
        ),
        Claim(
            "C2",
            "the loss of a ViT has negative Hessian eigenvalues, most of them with little "
            "training data",
            "sec. 2",
            _curvature(["NEP"], ("vit", "higher", "cnn"), ("vit 10%", "higher", "vit")),
        ),
        Claim(
            "C3",
            "global average pooling in place of a class token, and SAM, suppress negative "
            "eigenvalues",
            "sec. 2",
            _curvature(["NEP"], ("vit, GAP", "lower", "vit"), ("vit, SAM", "lower", "vit")),
        ),
        Claim(
            "C4",
            "a ViT does not overfit small data sets: its training NLL rises as the data set "
            "shrinks",
            "sec. 2",
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
        Claim(
            "C5",
            "local MSAs (3x3, 5x5) have a lower error and training NLL than global ones",
            "sec. 2",
            tuple(
                Hypothesis(f"vit, {size} attention", direction, quantity, "vit, full attention")
                for size in ("3x3", "5x5")
                for quantity, direction in (
                    ("test accuracy", "higher"),
                    ("NLL of training images", "lower"),
                )
            ),
        ),
        Claim(
            "C6",
            "MSAs are low-pass filters; convolutions and MLPs are high-pass filters",
            "sec. 3, fig. 2a",
            (
                *_blocks(TO_MEAN, "relative to the mean, as in the paper"),
                *_blocks(TO_LOWEST, "relative to the lowest frequency"),
            ),
        ),
        Claim(
            "C7",
            "ViTs are robust to high-frequency noise, ResNets to low-frequency noise",
            "sec. 3, fig. 2b",
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
        Claim(
            "C8",
            "MSAs lower the variance of feature maps; convolutions and MLPs raise it",
            "sec. 3, fig. 9",
            (*_blocks(VARIANCE, "variance"), *_blocks(SCALE_FREE, "variance over mean square")),
        ),
        Claim(
            "C9",
            "CKA of networks with several stages shows block structure",
            "sec. 4, app. D.3",
            tuple(
                Hypothesis(arm, "higher", "block structure of CKA")
                for arm in ("cnn", "multi-stage transformer")
            ),
        ),
        Claim(
            "C10",
            "removing early convolutions and late MSAs of a stage lowers the accuracy most",
            "sec. 4, fig. 10",
            (
                Hypothesis("cnn", "lower", "accuracy drop, late minus early conv of a stage"),
                Hypothesis(
                    "multi-stage transformer",
                    "higher",
                    "accuracy drop, late minus early attention of a stage",
                ),
            ),
        ),
        Claim(
            "C11",
            "a CNN with MSAs at the ends of its stages (AlterNet) is more accurate and more "
            "robust than the CNN",
            "sec. 4",
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
        Claim(
            "C12",
            "strong augmentation makes predictions underconfident",
            "app. C",
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
        Claim(
            "C13",
            "more heads reduce negative eigenvalues (NEP) and the size of positive ones (APE)",
            "sec. 2, app. C",
            _curvature(["NEP", "APE"], ("vit, many heads", "lower", "vit, few heads")),
        ),
        Claim(
            "C14",
            "very small patches lower the accuracy of a ViT",
            "app. C",
            (Hypothesis("vit, small patches", "lower", "test accuracy", "vit"),),
        ),
        Claim(
            "C15",
            "the loss landscape of a ViT is flatter than that of a ResNet",
            "sec. 2, fig. 1a",
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
        Claim(
            "C16",
            "the order of the leading Hessian eigenvalues of a ResNet and a ViT depends on the "
            "objective",
            "Park & Kim, sec. 2, against Chen et al. (2022)",
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
