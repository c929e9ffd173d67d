"""Hoyer sparsity of feature maps: (sqrt(n) - |x|_1 / |x|_2) / (sqrt(n) - 1), n activations."""

from jaxtyping import Float
from torch import Tensor

from visprism import kit


@kit.result("hoyer-sparsity", "Sparsity of feature maps")
class Sparsities(kit.ScalarPerBlock):
    """Hoyer sparsity; one row for each block.

    Each point is a block: 0 for activations of equal magnitude, 1 for a single activation that
    is not 0. ReLU networks have sparser feature maps than networks with GELU.
    """

    value_name = "sparsity"
    sparsity: kit.Estimated = kit.estimate(
        "Hoyer sparsity", asks="How sparse are feature maps?", row="mean over blocks"
    )


@kit.analysis
class HoyerSparsity(kit.FeatureAnalysis):
    """Hoyer sparsity of the feature maps of each block."""

    name = "hoyer-sparsity"
    gives = Sparsities
    default = False
    source = (
        "Hoyer (2004), Non-negative matrix factorization with sparseness constraints, eq. 4"
    )

    def extract(self, x: Float[Tensor, "b c h w"]) -> dict[str, Float[Tensor, " b"]]:
        """The sparsity of each image's map; 0 for a map that is 0, or has one activation."""
        flat = x.flatten(1)
        root, norm = flat.shape[1] ** 0.5, flat.norm(dim=1)
        sparsity = (root - flat.abs().sum(1) / norm) / max(root - 1, 1e-9)
        return {"sparsity": sparsity.where((norm > 0) & (flat.shape[1] > 1), 0.0)}
