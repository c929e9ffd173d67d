"""Alter-ResNets for CIFAR: ResNet-20 whose late stages end in multi-head self-attention."""

from collections.abc import Sequence

from visprism.core.errors import InputError
from visprism.models.layers.msa_block import PostActMSABlock
from visprism.models.options import checked
from visprism.models.zoo.alter_resnet import attention_places
from visprism.models.zoo.cifar_resnet import ResNet
from visprism.models.zoo_registry import MODELS

_DEPTHS = (3, 3, 3)
_CHANNELS = (16, 32, 64)


@MODELS.register
@checked
def alter_resnet20(
    *,
    num_classes: int = 10,
    in_chans: int = 3,
    msas: Sequence[int] = (0, 1, 1),
    num_heads: Sequence[int] = (1, 2, 3),
    head_dim: int = 64,
    window: int = 8,
    shared_bias: bool = False,
    head: str = "gap",
    mc_dropout: float = 0.0,
    smoothing: bool = False,
    drop_path_rate: float = 0.0,
) -> ResNet:
    """Alter-ResNet-20 for images of 32x32: 0.25 million parameters.

    ResNet-20 in which MSA blocks alternate with convolutions at the ends of the late stages,
    by the build-up rule. Norm and activation follow each convolution, as in ResNet-20.

    Args:
        num_classes: logits; 0 for a network that gives features.
        in_chans: channels of an image.
        msas: how many of the three blocks of each stage are MSAs: the last and the first.
        num_heads: of the MSAs of each stage.
        head_dim: channels of each head.
        window: side of a window in pixels.
        shared_bias: one table of relative positions for all heads of a block.
        head: "gap", "gap_mlp" or "attention_pool".
        mc_dropout: probability of dropout inside each block.
        smoothing: spatial smoothing at the end of each stage.
        drop_path_rate: stochastic depth of the last block; it grows linearly from 0.

    Source: Park and Kim (2022), How do vision transformers work?, sec. 4, for He et al. (2016),
    Deep residual learning for image recognition, sec. 4.2.
    """
    places = attention_places(_DEPTHS, msas)
    if len(num_heads) != len(_DEPTHS):
        raise InputError(
            f"num_heads must have one number per stage ({len(_DEPTHS)}), got {tuple(num_heads)}"
        )
    model = ResNet(
        _DEPTHS,
        _CHANNELS,
        num_classes=num_classes,
        in_chans=in_chans,
        head=head,
        mc_dropout=mc_dropout,
        smoothing=smoothing,
        drop_path_rate=drop_path_rate,
    )
    blocks_before = 0
    for stage, (depth, out_chans) in enumerate(zip(_DEPTHS, _CHANNELS, strict=True)):
        for place in sorted(places[stage]):
            first_of_later_stage = stage > 0 and place == 0
            block = PostActMSABlock(
                _CHANNELS[stage - 1] if first_of_later_stage else out_chans,
                out_chans,
                2 if first_of_later_stage else 1,
                width=out_chans,
                num_heads=num_heads[stage],
                head_dim=head_dim,
                window=window,
                shared_bias=shared_bias,
                drop_path=drop_path_rate * (blocks_before + place) / (sum(_DEPTHS) - 1),
                mc_dropout=mc_dropout,
            )
            model.set_submodule(f"layer{stage + 1}.{place}", block)
        blocks_before += depth
    return model
