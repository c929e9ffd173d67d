"""Author networks: every family in the code of Park and Kim (2022), as the zoo has it.

The four checkpoints that they publish are a ResNet-50 of the authors' class, and a ViT-Ti,
PiT-Ti and Swin-Ti of timm 0.5. The other formats are those of the authors' classes.
"""

import re
from typing import Any

import torch
from einops import rearrange
from torch import Tensor

from visprism.models.author_formats import AuthorFormat, Replacement, State

_NORM = "(weight|bias|running_mean|running_var|num_batches_tracked)"
_LAYER = "(weight|bias)"
_BLOCK = rf"(norm[12]|attn\.(qkv|proj)|mlp\.fc[12])\.{_LAYER}"
_STAGE = r"(layer[1-4]\.\d+)"
_SAME = r"\g<0>"
_SIZES = "(32|224)"
_EPS = 1e-5  # torch's for a LayerNorm; timm's transformers have 1e-6


def author_format(name: str, state: State) -> AuthorFormat | None:
    """The format in which the authors wrote the zoo's network `name`, if `state` has it."""
    for candidate in FORMATS:
        named = re.fullmatch(candidate.networks, name)
        if named and all(mark in state for mark in candidate.marks):
            return candidate
    return None


def _window_msas(state: State) -> dict[str, Any]:
    """The arguments of an Alter-ResNet, from the shapes in its file."""
    tables = {key: t for key, t in state.items() if key.endswith("attn.pos_embedding")}
    stages = [key.partition(".")[0] for key in tables]
    blocks = {tuple(key.split(".")[:2]) for key in state}
    depths = [sum(stage == f"layer{n}" for stage, _ in blocks) for n in range(1, 5)]
    sides = {(len(table) + 1) // 2 for table in tables.values() if table.ndim}
    options: dict[str, Any] = {
        "shared_bias": True,
        "depths": tuple(depths),
        "msas": tuple(stages.count(f"layer{n}") for n in range(1, 5)),
    }
    return options | ({"window": sides.pop()} if len(sides) == 1 else {})


def _joined_queries(state: State) -> State:
    """The convolutions of queries, and of keys and values, as one linear map."""
    joined = {}
    for key, tensor in state.items():
        if key.endswith(".attn.to_q.weight"):
            keys_values = state[key.replace("to_q", "to_kv")]
            joined[key.replace("to_q", "qkv")] = torch.cat([tensor, keys_values]).flatten(1)
        elif not key.endswith(".attn.to_kv.weight"):
            joined[key] = tensor
    return joined


def _staged_tokens(state: State) -> State:
    """A PiT of the authors with a number for the stage, and positions on a grid."""
    pools = sorted(int(k.split(".")[1]) for k in state if k.endswith(".cls_ff.weight"))
    staged = {}
    for key, tensor in state.items():
        row = re.match(r"transformers\.(\d+)\.(.*)", key)
        if row is None:
            staged[key] = tensor
            continue
        place = int(row[1])
        before = [pool for pool in pools if pool <= place]
        inside = place - (before[-1] + 1 if before else 0)
        part = "pool" if place in pools else f"blocks.{inside}"
        staged[f"transformers.{len(before)}.{part}.{row[2]}"] = tensor
    positions = staged.pop("embedding.2.pos_embedding")
    staged["cls_pos"] = positions[:, :1]
    side = round((positions.shape[1] - 1) ** 0.5)
    staged["pos_embed"] = positions[:, 1:].mT.unflatten(2, (side, -1))
    return staged


def _patches_of_pixels(weight: Tensor) -> Tensor:
    """A linear map of pixels in the order row, column, channel as a convolution."""
    side = round((weight.shape[1] / 3) ** 0.5)
    return rearrange(weight.unflatten(1, (side, side, -1)), "d h w c -> d c h w")


def _patches_of_channels(weight: Tensor) -> Tensor:
    """A linear map of pixels in the order channel, row, column as a convolution."""
    side = round((weight.shape[1] / 3) ** 0.5)
    return weight.unflatten(1, (-1, side, side))


_PRE_ACTIVATION: tuple[tuple[str, Replacement], ...] = (
    (rf"{_STAGE}\.shortcut\.0\.weight", r"\1.downsample.weight"),
    (rf"{_STAGE}\.bn\.{_NORM}", r"\1.norm1.\2"),
    (rf"{_STAGE}\.conv1\.weight", _SAME),
    (rf"{_STAGE}\.conv([23])\.0\.{_NORM}", r"\1.norm\2.\3"),
    (rf"{_STAGE}\.conv([23])\.2\.weight", r"\1.conv\2.weight"),
    (rf"classifier\.0\.bn\.{_NORM}", r"norm.\1"),
    (rf"classifier\.0\.dense\.{_LAYER}", r"fc.\1"),
)
# Norms, attention and MLP of a block of their transformers, behind the name of the block.
_TRANSFORMER: tuple[tuple[str, str], ...] = (
    (rf"norm([12])\.{_LAYER}", r"norm\2.\3"),
    (r"attn\.to_qkv\.weight", "attn.qkv.weight"),
    (rf"attn\.to_out\.0\.{_LAYER}", r"attn.proj.\2"),
    (rf"ff\.net\.0\.{_LAYER}", r"mlp.fc1.\2"),
    (rf"ff\.net\.3\.{_LAYER}", r"mlp.fc2.\2"),
)
_TOKENS: tuple[tuple[str, Replacement], ...] = (
    (r"embedding\.1\.cls_token", "cls_token"),
    (rf"classifier\.1\.{_LAYER}", r"norm.\1"),
    (rf"classifier\.2\.{_LAYER}", r"head.\1"),
)
_DENSE = "classifier.0.dense.weight"

FORMATS: tuple[AuthorFormat, ...] = (
    AuthorFormat(
        networks=rf"(wide_|se_|cbam_)?resne[xt]t?\d+(_32x[48]d|_2)?_{_SIZES}",
        marks=("layer0.0.weight", "layer0.1.weight", _DENSE),
        classifier=_DENSE,
        names=(
            (r"layer0\.0\.weight", "conv1.weight"),
            (rf"layer0\.1\.{_NORM}", r"bn1.\1"),
            (rf"{_STAGE}\.conv([123])\.0\.weight", r"\1.conv\2.weight"),
            (rf"{_STAGE}\.conv([123])\.1\.{_NORM}", r"\1.bn\2.\3"),
            (rf"{_STAGE}\.shortcut\.0\.weight", r"\1.downsample.0.weight"),
            (rf"{_STAGE}\.shortcut\.1\.{_NORM}", r"\1.downsample.1.\2"),
            (rf"{_STAGE}\.gate\.ff\.0\.weight", r"\1.se.fc1.weight"),
            (rf"{_STAGE}\.gate\.ff\.2\.weight", r"\1.se.fc2.weight"),
            (rf"{_STAGE}\.gate\.0\.ff\.0\.weight", r"\1.se.channel.fc1.weight"),
            (rf"{_STAGE}\.gate\.0\.ff\.2\.weight", r"\1.se.channel.fc2.weight"),
            (rf"{_STAGE}\.gate\.1\.ff\.0\.weight", r"\1.se.spatial.conv.conv.weight"),
            (rf"{_STAGE}\.gate\.1\.ff\.1\.{_NORM}", r"\1.se.spatial.conv.bn.\2"),
            (rf"classifier\.0\.dense\.{_LAYER}", r"fc.\1"),
        ),
        values=(
            (r".*\.se\.(channel\.)?fc[12]\.weight", lambda weight: weight[:, :, None, None]),
            # Their gate takes the mean of what both poolings give, CBAM's equation the sum.
            (r".*\.se\.channel\.fc2\.weight", lambda weight: weight / 2),
        ),
    ),
    AuthorFormat(
        networks=rf"preact_resnet\d+_{_SIZES}",
        marks=("layer0.0.weight", "layer1.0.bn.weight", "classifier.0.bn.weight"),
        classifier=_DENSE,
        names=((r"layer0\.0\.weight", "conv1.weight"), *_PRE_ACTIVATION),
    ),
    AuthorFormat(
        networks=rf"alter_resnet\d+_{_SIZES}",
        marks=("layer0.layer0.0.weight", "classifier.0.bn.weight"),
        classifier=_DENSE,
        names=(
            (r"layer0\.layer0\.0\.weight", "conv1.weight"),
            *_PRE_ACTIVATION,
            (rf"{_STAGE}\.norm([12])\.{_NORM}", _SAME),
            (rf"{_STAGE}\.conv\.weight", r"\1.conv1.weight"),
            (rf"{_STAGE}\.attn\.attn\.qkv\.weight", r"\1.attn.qkv.weight"),
            (rf"{_STAGE}\.attn\.attn\.to_out\.0\.{_LAYER}", r"\1.attn.proj.\2"),
            (rf"{_STAGE}\.attn\.pos_embedding", r"\1.attn.relative_bias"),
        ),
        arguments=_window_msas,
        rearranged=_joined_queries,
        values=(
            (r".*\.attn\.proj\.weight", lambda weight: weight.flatten(1)),
            (r".*\.attn\.relative_bias", lambda table: table[None]),
        ),
    ),
    *(
        AuthorFormat(
            networks=rf"{networks}_{_SIZES}",
            marks=marks,
            classifier=classifier,
            names=((names, _SAME), (rf"classifier\.(\d\.)?dense\d?\.{_LAYER}", _SAME)),
            in_order=True,
            arguments=lambda _, options=options: dict(options),
        )
        for networks, marks, classifier, names, options in (
            (
                r"(preact_)?vgg\d+(_bn)?",
                ("layer0.0.conv.weight", "layer0.0.bn.weight", "classifier.2.dense3.weight"),
                "classifier.2.dense3.weight",
                rf"layer[0-4]\.\d+\.(conv\.weight|bn\.{_NORM})",
                (),
            ),
            (
                "alexnet",
                ("layer0.0.conv.weight", "layer2.3.conv.weight", "classifier.2.dense3.weight"),
                "classifier.2.dense3.weight",
                r"layer[0-2]\.\d+\.conv\.weight",
                (("conv_bias", False),),
            ),
            (
                "mobilenetv2",
                ("features.1.conv1.0.weight", "classifier.dense.weight"),
                "classifier.dense.weight",
                rf"features\.\d+\.(conv[123]\.)?(0\.weight|1\.{_NORM})",
                (),
            ),
        )
    ),
    AuthorFormat(
        networks=r"vit_(tiny|small|base)_patch\d+_(32|224)",
        marks=("embedding.0.patch_embedding.1.weight", "embedding.1.cls_token"),
        classifier="classifier.2.weight",
        names=(
            *_TOKENS,
            (rf"embedding\.0\.patch_embedding\.1\.{_LAYER}", r"patch_embed.proj.\1"),
            (r"embedding\.2\.pos_embedding", "pos_embed"),
            *((rf"transformers\.(\d+)\.{a}", rf"blocks.\1.{b}") for a, b in _TRANSFORMER),
        ),
        values=((r"patch_embed\.proj\.weight", _patches_of_pixels),),
        layer_norm_eps=_EPS,
    ),
    AuthorFormat(
        networks=r"pit_(tiny|xs|small|base)(_patch2)?_(32|224)",
        marks=("embedding.0.patch_embedding.2.weight", "embedding.2.pos_embedding"),
        classifier="classifier.2.weight",
        names=(
            *_TOKENS,
            (r"cls_pos|pos_embed", _SAME),
            (rf"embedding\.0\.patch_embedding\.2\.{_LAYER}", r"patch_embed.conv.\1"),
            *((rf"(transformers\.\d\.blocks\.\d+)\.{a}", rf"\1.{b}") for a, b in _TRANSFORMER),
            (rf"(transformers\.\d\.pool)\.cls_ff\.{_LAYER}", r"\1.fc.\2"),
            (rf"(transformers\.\d\.pool)\.downsample\.net\.0\.{_LAYER}", r"\1.conv.\2"),
        ),
        rearranged=_staged_tokens,
        values=((r"patch_embed\.conv\.weight", _patches_of_channels),),
        layer_norm_eps=_EPS,
    ),
    AuthorFormat(
        networks=r"mixer_(tiny|small|base)_patch\d+_(32|224)",
        marks=("embedding.0.patch_embedding.1.weight", "mlps.0.ff1.net.0.weight"),
        classifier="classifier.2.weight",
        names=(
            (rf"classifier\.0\.{_LAYER}", r"norm.\1"),
            (rf"classifier\.2\.{_LAYER}", r"head.\1"),
            (rf"embedding\.0\.patch_embedding\.1\.{_LAYER}", r"stem.proj.\1"),
            (rf"mlps\.(\d+)\.norm([12])\.{_LAYER}", r"blocks.\1.norm\2.\3"),
            (rf"mlps\.(\d+)\.ff1\.net\.0\.{_LAYER}", r"blocks.\1.mlp_tokens.fc1.\2"),
            (rf"mlps\.(\d+)\.ff1\.net\.3\.{_LAYER}", r"blocks.\1.mlp_tokens.fc2.\2"),
            (rf"mlps\.(\d+)\.ff2\.net\.0\.{_LAYER}", r"blocks.\1.mlp_channels.fc1.\2"),
            (rf"mlps\.(\d+)\.ff2\.net\.3\.{_LAYER}", r"blocks.\1.mlp_channels.fc2.\2"),
        ),
        values=(
            (r"stem\.proj\.weight", _patches_of_pixels),
            (r"blocks\.\d+\.mlp_tokens\.fc[12]\.weight", lambda weight: weight.flatten(1)),
        ),
        layer_norm_eps=_EPS,
    ),
    AuthorFormat(
        networks=r"swin_.*",
        marks=("layer1.0.patch_merge.weight",),
        refusal="the Swin of the authors' class merges patches by convolutions with biases "
        "and without norms, which the official Swin does not",
    ),
    AuthorFormat(
        networks=r"conv_vit_.*",
        marks=("embedding.0.weight", "transformers.0.attn.to_kv.weight"),
        refusal="the local attention of the authors' class takes zeros for tokens outside of "
        "the image, which that of visprism leaves out",
    ),
    AuthorFormat(
        networks="vit_tiny_patch2_32",
        marks=("cls_token", "head.weight"),
        classifier="head.weight",
        names=(
            (rf"cls_token|pos_embed|(patch_embed\.proj|norm|head)\.{_LAYER}", _SAME),
            (rf"blocks\.\d+\.{_BLOCK}", _SAME),
        ),
    ),
    AuthorFormat(
        networks="pit_tiny_patch2_32",
        marks=("transformers.0.blocks.0.attn.qkv.bias", "head.weight"),
        classifier="head.weight",
        names=(
            (rf"cls_token|pos_embed|(patch_embed\.conv|norm|head)\.{_LAYER}", _SAME),
            (rf"transformers\.\d\.blocks\.\d+\.{_BLOCK}", _SAME),
            (  # timm 0.5 pools at the end of a stage, timm 1 at the beginning
                rf"transformers\.(\d)\.pool\.(conv|fc)\.{_LAYER}",
                lambda key: f"transformers.{int(key[1]) + 1}.pool.{key[2]}.{key[3]}",
            ),
        ),
        arguments=lambda _: {"qkv_bias": True, "no_embed_class": True},
    ),
    AuthorFormat(
        networks="swin_tiny_patch1_window4_32",
        marks=("layers.0.downsample.reduction.weight", "head.weight"),
        classifier="head.weight",
        names=(
            (rf"(patch_embed\.(proj|norm)|norm)\.{_LAYER}", _SAME),
            (rf"layers\.\d\.blocks\.\d+\.{_BLOCK}", _SAME),
            (r"layers\.\d\.blocks\.\d+\.attn\.relative_position_bias_table", _SAME),
            (  # timm 0.5 merges patches at the end of a stage, timm 1 at the beginning
                rf"layers\.(\d)\.downsample\.(norm|reduction)\.{_LAYER}",
                lambda key: f"layers.{int(key[1]) + 1}.downsample.{key[2]}.{key[3]}",
            ),
            (rf"head\.{_LAYER}", r"head.fc.\1"),
        ),
        arguments=lambda _: {"qkv_bias": False},
        constants=r"layers\.([0-3])\.blocks\.\d+\.(attn_mask|attn\.relative_position_index)",
    ),
)
