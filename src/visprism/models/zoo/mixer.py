"""MLP-Mixers (Tolstikhin et al. 2021), based on timm's."""

from timm.models.mlp_mixer import MlpMixer

from visprism.models.layers.patch_embed import PatchEmbed
from visprism.models.zoo_registry import MODELS


def mixer(
    width: int,
    *,
    img_size: int = 224,
    patch_size: int = 16,
    in_chans: int = 3,
    num_classes: int = 1000,
    depth: int = 8,
    drop_path_rate: float = 0.0,
    mc_dropout: float = 0.0,
) -> MlpMixer:
    """Blocks of an MLP of width/2 over the tokens and one of 4x width over the channels.

    The MLP over tokens has a weight for each pair of them, so only images of `img_size` run.
    `drop_path_rate` applies to every block.

    Source: Tolstikhin et al. (2021), MLP-Mixer: an all-MLP architecture for vision, table 1;
    the smallest is Park and Kim's.
    """
    stem = PatchEmbed(
        img_size=img_size, patch_size=patch_size, in_chans=in_chans, embed_dim=width
    )
    model = MlpMixer(
        img_size=img_size,
        patch_size=patch_size,
        in_chans=in_chans,
        num_classes=num_classes,
        num_blocks=depth,
        embed_dim=width,
        drop_path_rate=drop_path_rate,
        proj_drop_rate=mc_dropout,
    )
    stem.proj = model.stem.proj
    model.stem = stem
    return model


_SHAPES = {"tiny": ("Ti", 256, 8), "small": ("S", 512, 8), "base": ("B", 768, 12)}

for _patch, _side in ((2, 32), (16, 224)):
    MODELS.register_family(
        mixer,
        {
            f"mixer_{size}_patch{_patch}": (
                f"Mixer-{letters}/{_patch}",
                {"width": width, "depth": depth, "patch_size": _patch},
            )
            for size, (letters, width, depth) in _SHAPES.items()
        },
        (_side,),
    )

MODELS.register_family(
    mixer,
    {
        "mixer_pico_patch4": (
            "Mixer-Pico/4 (0.6 million parameters)",
            {"width": 96, "depth": 8, "patch_size": 4},
        )
    },
    (32,),
)
