"""Laws of observation (src/visprism/passes/features.py): one pass for every probe."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from maps import classifier
from small_models import OneBlock, Residual
from torch import nn
from unusual_modules import Caching

import visprism as vp
from visprism.passes.features import blocks_off_grid


@pytest.fixture
def model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return OneBlock(width=4, patch=1, classes=10).eval().double()


@pytest.fixture
def images(noise):
    return noise(7, 3, 8, 8)


@pytest.fixture
def anatomy(model, images):
    return vp.dissect(model, images)


def analyses():
    return [vp.Fourier(), vp.Fourier("radial"), vp.Variance()]


def test_all_see_what_each_would_alone_in_one_pass(anatomy, images):
    passes = []
    anatomy.model.register_forward_hook(lambda *_: passes.append(1))
    together = vp.observe(anatomy, [images[:4], images[4:]], analyses())
    assert len(passes) == 2
    for result, analysis in zip(together, analyses(), strict=True):
        vp.assert_results_equal(result, *vp.observe(anatomy, [images], [analysis]))


def test_a_batch_is_images_or_images_and_targets(anatomy, images):
    (expected,) = vp.observe(anatomy, [images], [vp.Fourier()])
    targets = torch.zeros(len(images), dtype=torch.long)
    for batch in ((images, targets), [images, targets], {"x": images}, ({"x": images}, None)):
        vp.assert_results_equal(expected, *vp.observe(anatomy, [batch], [vp.Fourier()]))


def test_a_block_off_the_grid_is_named_before_the_next_one():
    model = classifier(nn.Conv2d(3, 8, 1), *(Residual() for _ in range(3)), channels=8)
    anatomy = vp.dissect(model, torch.zeros(2, 3, 8, 8))
    names = [block.name for block in anatomy if block.layout is not None]
    assert blocks_off_grid(anatomy) == {}
    middle = anatomy[names[2]]
    blocks = tuple(replace(b, layout=None) if b == middle else b for b in anatomy)
    assert blocks_off_grid(replace(anatomy, blocks=blocks)) == {names[3]: names[2]}


@pytest.mark.parametrize(
    "statistic",
    [
        *(vp.Fourier(*names) for names in (("diagonal",), ("radial",), ("diagonal", "paper"))),
        vp.BandEnergy(),
        vp.FourierPlane(),
        vp.SingularValues(),
        vp.TokenSimilarity(),
        vp.Variance(),
        vp.TokenNorms(outlier_threshold=1.2),
    ],
    ids=repr,
)
def test_it_obeys_the_laws_of_statistics(tmp_path, statistic):
    vp.check_statistic(statistic, tmp_path)


def test_what_a_model_caches_meanwhile_can_be_differentiated_later(images):
    model = Caching().eval().double()
    anatomy = vp.dissect(model, images)
    model.table = None
    vp.observe(anatomy, [images], [vp.Variance()])
    model(images).sum().backward()  # fails on tensors made in inference mode
    assert model.stem.weight.grad is not None


def test_mixed_precision_is_near_float32_and_measured_in_it(model, images):
    anatomy = vp.dissect(model.float(), images.float())
    settings = []

    class Watching(vp.Variance):
        def extract(self, x):
            settings.append((x.dtype, torch.is_autocast_enabled("cpu")))
            return super().extract(x)

    batches = [images.float()]
    (exact,) = vp.observe(anatomy, batches, [vp.Variance()])
    bf16 = vp.Run(compute=vp.Compute(precision="bf16"))
    (mixed,) = vp.observe(anatomy, batches, [Watching()], run=bf16)
    assert set(settings) == {(torch.float32, False)}
    np.testing.assert_allclose(mixed.variance, exact.variance, rtol=0.02)  # bf16: 8 bits
    assert not np.array_equal(mixed.variance, exact.variance)
    assert mixed.provenance.precision == "bf16"


def test_provenance_is_filled_in(anatomy, images):
    origin = vp.Provenance(model="net", data="noise", command="visprism examine net")
    paper, variances = vp.observe(
        anatomy,
        images.split(3),
        [vp.Fourier(protocol="paper"), vp.Variance()],
        run=vp.Run(seed=3, provenance=origin),
    )
    assert paper.provenance.protocol == "paper"
    assert variances.provenance.protocol == "default"
    filled = variances.provenance
    assert (filled.images, filled.batch_size, filled.image_shape) == (7, 3, (3, 8, 8))
    assert (filled.precision, filled.device, filled.processes) == ("fp32", "cpu", 1)
    assert (filled.model, filled.data, filled.seed) == ("net", "noise", 3)
    assert filled.command == "visprism examine net"


def test_what_is_not_images_is_refused(anatomy):
    for batch, got in (
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), r"uint8 of shape \(2, 3, 8, 8\)"),
        (torch.zeros(3, 8, 8), r"float32 of shape \(3, 8, 8\)"),
        (("a.png", 3), "str"),
        (torch.zeros(0, 3, 8, 8), r"float32 of shape \(0, 3, 8, 8\)"),
    ):
        with pytest.raises(ValueError, match=f"a batch must be images or .*: .* got {got}"):
            vp.observe(anatomy, iter([batch]), analyses())


def test_nan_names_the_first_block_that_has_some_and_counts_its_images(anatomy, images):
    broken = images.clone()
    broken[[1, 5], 0, 3, 3] = torch.tensor([torch.nan, -torch.inf]).double()
    with pytest.raises(ValueError, match="NaN or infinity from block 'stem' for 2 of 7 images"):
        vp.observe(anatomy, [broken], [vp.Fourier()])
    with torch.no_grad():
        anatomy.model.block.weight[0] = float("nan")
    expected = "got NaN or infinity from block 'block' for 7 of 7 images of a batch. Check the"
    with pytest.raises(ValueError, match=expected):
        vp.observe(anatomy, [images], [vp.Variance()])


def test_overflow_in_half_precision_says_so(model, images):
    anatomy = vp.dissect(model.float(), images.float())
    with torch.no_grad():
        model.block.bias.fill_(1e5)  # half precision ends at 65,504
    fp16 = vp.Run(compute=vp.Compute(precision="fp16"))
    with pytest.raises(ValueError, match=r"block 'block' .* fp16 may overflow: try precision"):
        vp.observe(anatomy, [images.float()], [vp.Variance()], run=fp16)


def test_a_block_that_does_not_run_is_named(images):
    model = classifier(nn.Conv2d(3, 8, 1), Residual(), Residual(), channels=8).double()
    anatomy = vp.dissect(model, images)
    model.forward = lambda x: model[3:](model[:2](x))
    with pytest.raises(ValueError, match=r"block '2' did not run .* Dissect the model as it"):
        vp.observe(anatomy, [images], [vp.Variance()])
