"""Which blocks could a network do without? Each in turn becomes the identity.

Run: python examples/which_blocks_matter.py
"""

import torch

import visprism as vp

loaded = vp.load_model("timm:vit_tiny_patch16_224?img_size=32&patch_size=4&depth=4")
images, _ = next(iter(vp.batches(vp.load_data("shapes"), loaded.preprocessing, batch_size=16)))
anatomy = vp.dissect(loaded.model, images)

with torch.inference_mode():
    logits = vp.forward(loaded.model, images)
    for block in anatomy:
        if block.kind in ("attention", "mlp"):
            with vp.ablate(anatomy, block):
                change = (vp.forward(loaded.model, images) - logits).norm() / logits.norm()
            print(f"without {block.name:14} the logits change by {change:6.1%}")
