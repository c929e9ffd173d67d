"""Studies of photographs and of CIFAR-10, where their folder is at hand."""

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


@pytest.mark.slow
@pytest.mark.parametrize(("split", "images"), [("test", 10_000), ("train", 50_000)])
def test_cifar_10_from_parquet(real_images, split, images):
    from visprism.images import load_data

    data = load_data(f"parquet:{real_images}/cifar10", split=split)
    assert (len(data), data.num_classes) == (images, 10)
    study = examine(
        "resnet20",
        f"parquet:{real_images}/cifar10",
        analyses=["variance"],
        images=DataOptions(split=split, limit=4),
        minutes=None,
    )
    (name,) = study.models
    provenance = study[name]["variance"].provenance
    assert (provenance.images, provenance.image_shape) == (4, (3, 32, 32))
    assert provenance.split == split
