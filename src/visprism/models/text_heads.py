"""Text heads: CLIP and SigLIP with class names are classifiers of images."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize

from visprism.core.class_names import CLASS_NAMES
from visprism.core.errors import InputError

TEMPLATE = "a photo of a {}"


class TextClassifier(nn.Module):
    """Cosines of an image's and each name's features, times a scale, plus a bias."""

    task = "retrieval"

    def __init__(
        self, towers: Any, names: Float[Tensor, "k d"], scale: float, bias: float
    ) -> None:
        super().__init__()
        self.towers = towers
        self.head = nn.Linear(names.shape[1], len(names))
        self.head.weight.data, self.scale = names, scale
        self.head.bias.data.fill_(bias / scale)

    def forward(self, pixel_values: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b k"]:
        """The logits of the names."""
        features = _features(self.towers.get_image_features(pixel_values=pixel_values))
        return self.scale * self.head(normalize(features, dim=1))


def _features(output: Any) -> Float[Tensor, "b d"]:
    return output if isinstance(output, Tensor) else output.pooler_output


@torch.no_grad()
def text_classifier(
    source: str, names: Sequence[str], template: str, *, pretrained: bool
) -> TextClassifier:
    """A model of images and texts with the features of the names as its head, encoded once.

    Args:
        source: folder, or repository of the Hub.
        names: of the classes.
        template: a text with {} for the name.
        pretrained: whether a repository's weights are loaded; a folder's always are.
    """
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    if "{}" not in template:
        raise InputError(f"template must have {{}} for the name of a class, got {template!r}")
    config = AutoConfig.from_pretrained(source)
    if not hasattr(config, "text_config"):
        raise InputError(f"{source} has no part for texts, which a template of classes needs")
    folder = Path(source)
    stored = any(folder.glob("*.safetensors")) or any(folder.glob("pytorch_model*.bin"))
    random = folder.is_dir() and not stored
    if random or not (pretrained or stored):
        towers = AutoModel.from_config(config)
    else:
        towers = AutoModel.from_pretrained(source)
    towers = towers.eval()
    tokenizer: Any = AutoTokenizer.from_pretrained(source)
    longest = config.text_config.max_position_embeddings
    tokens = tokenizer(
        [template.format(name) for name in names],
        padding="max_length", max_length=longest, truncation=True, return_tensors="pt",
    )  # fmt: skip
    inputs = {"input_ids": tokens["input_ids"]}
    if config.model_type == "clip":
        inputs["attention_mask"] = tokens["attention_mask"]
    features = normalize(_features(towers.get_text_features(**inputs)), dim=1)
    bias = getattr(towers, "logit_bias", None)
    scale = float(towers.logit_scale.exp())
    model = TextClassifier(towers, features, scale, 0.0 if bias is None else float(bias))
    for parameter in (p for n, p in towers.named_parameters() if n.startswith("text_")):
        parameter.requires_grad_(False)
    setattr(model, CLASS_NAMES, tuple(names))
    return model.eval()
