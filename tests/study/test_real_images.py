"""A study of photographs, where their folder is at hand."""

import pytest

from visprism import DataOptions, examine


@pytest.mark.slow
def test_photographs_through_a_network_of_timm(real_images):
    study = examine(
        "timm:resnet18?channels=(8,12,16,20)&layers=(1,1,1,1)&pretrained=False",
        f"folder:{real_images}/imagenet-sample/val",
        analyses=["fourier", "hessian"],
        options={"hessian": {"k": 1, "mini_batch": 16}},
        images=DataOptions(limit=16, size=(64, 64)),
        minutes=None,
    )
    assert not study.failures  # its 1,000 classes are those of the photographs
    (name,) = study.models
    assert study[name]["fourier"].provenance.image_shape == (3, 64, 64)
    assert study[name]["hessian"].batches.tolist() == [1]
