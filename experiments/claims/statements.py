"""Statements of Park & Kim (2022), "How Do Vision Transformers Work?", ICLR, in our words."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Statement:
    """A statement of the paper, which the rows of the experiment refer to by its code."""

    code: str
    text: str
    source: str  # section or figure


_TABLE = """
C1 | MSAs reduce the magnitude of Hessian eigenvalues: they flatten the loss | sec. 2
C2 | the loss of a ViT has negative Hessian eigenvalues, most of them with little \
training data | sec. 2
C3 | global average pooling in place of a class token, and SAM, suppress negative \
eigenvalues | sec. 2
C4 | a ViT does not overfit small data sets: its training NLL rises as the data set \
shrinks | sec. 2
C5 | local MSAs (3x3, 5x5) have a lower error and training NLL than global ones | sec. 2
C6 | MSAs are low-pass filters; convolutions and MLPs are high-pass filters | sec. 3, fig. 2a
C7 | ViTs are robust to high-frequency noise, ResNets to low-frequency noise | sec. 3, fig. 2b
C8 | MSAs lower the variance of feature maps; convolutions and MLPs raise it | sec. 3, fig. 9
C9 | CKA of networks with several stages shows block structure | sec. 4, app. D.3
C10 | removing early convolutions and late MSAs of a stage lowers the accuracy most | \
sec. 4, fig. 10
C11 | a CNN with MSAs at the ends of its stages (AlterNet) is more accurate and more \
robust than the CNN | sec. 4
C12 | strong augmentation makes predictions underconfident | app. C
C13 | more heads reduce negative eigenvalues (NEP) and the size of positive ones (APE) | \
sec. 2, app. C
C14 | very small patches lower the accuracy of a ViT | app. C
C15 | the loss landscape of a ViT is flatter than a ResNet's | sec. 2, fig. 1a
C16 | the order of the leading Hessian eigenvalues of a ResNet and a ViT depends on the \
objective | Park & Kim, sec. 2, against Chen et al. (2022)
"""
STATEMENTS = {
    code: Statement(code, text, source)
    for code, text, source in (line.split(" | ") for line in _TABLE.strip().splitlines())
}
