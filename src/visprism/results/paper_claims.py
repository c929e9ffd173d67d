"""Statements of Park & Kim (2022), "How Do Vision Transformers Work?", ICLR, in our words."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PaperClaim:
    """A statement of the paper, which answers and experiments refer to by its code."""

    code: str
    statement: str
    source: str  # section or figure


PAPER_CLAIMS = {
    claim.code: claim
    for claim in (
        PaperClaim(
            "C1",
            "MSAs reduce the magnitude of Hessian eigenvalues: they flatten the loss",
            "sec. 2",
        ),
        PaperClaim(
            "C2",
            "the loss of a ViT has negative Hessian eigenvalues, most of them with little "
            "training data",
            "sec. 2",
        ),
        PaperClaim(
            "C3",
            "global average pooling in place of a class token, and SAM, suppress negative "
            "eigenvalues",
            "sec. 2",
        ),
        PaperClaim(
            "C4",
            "a ViT does not overfit small data sets: its training NLL rises as the data "
            "set shrinks",
            "sec. 2",
        ),
        PaperClaim(
            "C5",
            "local MSAs (3x3, 5x5) have a lower error and training NLL than global ones",
            "sec. 2",
        ),
        PaperClaim(
            "C6",
            "MSAs are low-pass filters; convolutions and MLPs are high-pass filters",
            "sec. 3, fig. 2a",
        ),
        PaperClaim(
            "C7",
            "ViTs are robust to high-frequency noise, ResNets to low-frequency noise",
            "sec. 3, fig. 2b",
        ),
        PaperClaim(
            "C8",
            "MSAs lower the variance of feature maps; convolutions and MLPs raise it",
            "sec. 3, fig. 9",
        ),
        PaperClaim(
            "C9",
            "CKA of networks with several stages shows block structure",
            "sec. 4, app. D.3",
        ),
        PaperClaim(
            "C10",
            "removing early convolutions and late MSAs of a stage lowers the accuracy most",
            "sec. 4, fig. 10",
        ),
        PaperClaim(
            "C11",
            "a CNN with MSAs at the ends of its stages (AlterNet) is more accurate and "
            "more robust than the CNN",
            "sec. 4",
        ),
        PaperClaim("C12", "strong augmentation makes predictions underconfident", "app. C"),
        PaperClaim(
            "C13",
            "more heads reduce negative eigenvalues (NEP) and the size of positive ones (APE)",
            "sec. 2, app. C",
        ),
        PaperClaim("C14", "very small patches lower the accuracy of a ViT", "app. C"),
        PaperClaim(
            "C15",
            "the loss landscape of a ViT is flatter than that of a ResNet",
            "sec. 2, fig. 1a",
        ),
        PaperClaim(
            "C16",
            "the order of the leading Hessian eigenvalues of a ResNet and a ViT depends on "
            "the objective",
            "Park & Kim, sec. 2, against Chen et al. (2022)",
        ),
    )
}
