"""Tests of inference settings (src/visprism/measure/inference)."""

import copy
from contextlib import suppress

import pytest
import timm
import torch
import torchvision
from torch import nn

from visprism import Compute, InputError, Run, load_model, predict
from visprism.core.devices import CPU
from visprism.core.inference import Inference
from visprism.measure.inference import (
    default_batch_size,
    inference,
    select_inference,
    verified_images,
)

TOLERANCE = 1e-4  # of the largest logit, as documented


def images(number=8, size=32, seed=0):
    return torch.randn(number, 3, size, size, generator=torch.Generator().manual_seed(seed))


def labeled(number=40, size=32, batch=7):
    pairs = images(number, size, 1).split(batch), torch.zeros(number, dtype=int).split(batch)
    return list(zip(*pairs, strict=True))


def with_statistics(model, size=32):
    """The model with the running statistics of some images, in evaluation mode."""
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d) and module.affine:
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.uniform_(module.bias, -0.5, 0.5)
        model.train()(images(16, size, 2))
    return model.eval()


def seeded(build):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build()


class ReadTwice(nn.Module):
    """A convolution whose output not only the norm reads, beside a pair that can be folded."""

    def __init__(self):
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv, self.norm = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        y = self.conv(self.bn(self.stem(x)).relu())
        return self.head((y + self.norm(y)).mean((2, 3)))


class Tied(nn.Module):
    """One convolution and one norm, used twice."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 1)
        self.conv, self.norm = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = self.stem(x)
        for _ in range(2):
            x = x + self.norm(self.conv(x)).relu()
        return self.head(x.mean((2, 3)))


class Viewing(nn.Module):
    """Views feature maps as contiguous, which fails in the format channels last."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.head = nn.Linear(4 * 32 * 32, 5)

    def forward(self, x):
        return self.head(self.norm(self.conv(x)).view(len(x), -1))


def timm_model(name, **options):
    return lambda: timm.create_model(name, num_classes=7, **options)


# name: (model, side of the images, number of folded norms, channels-last)
MODELS = {
    "resnet20": (lambda: load_model("resnet20.cifar10").model, 32, 21, True),
    "vit": (lambda: load_model("vit_nano_patch4_32.cifar10").model, 32, 0, True),
    "torchvision-resnet18": (lambda: torchvision.models.resnet18(num_classes=7), 64, 20, True),
    "mobilenetv3": (timm_model("mobilenetv3_small_050"), 64, 34, True),
    "regnet": (timm_model("regnetx_002"), 64, 44, True),
    "convnext": (timm_model("convnext_atto"), 64, 0, True),
    "swin": (
        timm_model("swin_tiny_patch4_window7_224", img_size=56, embed_dim=24, depths=(1, 1)),
        56,
        0,
        True,
    ),
    "mlp": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(3072, 7)), 32, 0, False),
    "read-twice": (ReadTwice, 32, 1, True),
    "tied": (Tied, 32, 0, True),
    "viewing": (Viewing, 32, 1, False),
}


@pytest.fixture(scope="module", params=MODELS)
def case(request):
    build, size, folds, last = MODELS[request.param]
    model = seeded(build)
    if "." not in request.param:
        model = with_statistics(model, size) if folds else model.eval()
    return model, size, folds, last


# Against the model as it is written.


def test_logits_and_decisions_are_those_of_the_model_as_it_is_written(case):
    model, size, folds, last = case
    batches = labeled(40, size)
    settings = select_inference(model, images(size=size), CPU)
    assert (len(settings.folds), settings.channels_last) == (folds, last)
    assert settings.reason == ""
    plain = predict(model, batches, run=Run(inference=Inference())).logits
    with torch.no_grad():
        torch.testing.assert_close(plain, torch.cat([model(x) for x, _ in batches]))
    selected = predict(model, batches).logits
    assert (selected - plain).abs().max() <= TOLERANCE * plain.abs().max()
    assert torch.equal(selected.argmax(1), plain.argmax(1))


def test_the_model_stays_exactly_as_it_was(case):
    model, size, *_ = case

    def state():
        tensors = {
            name: (id(t), t.data_ptr(), t.stride(), t._version, t.clone())
            for name, t in (*model.named_parameters(), *model.named_buffers())
        }
        return tensors, [(id(m), m.training, sorted(vars(m))) for m in model.modules()]

    def numbers(state):
        return {name: values[:-2] for name, values in state[0].items()}, state[1]

    before, random = state(), torch.get_rng_state()
    predict(model, labeled(20, size))
    after = state()
    assert numbers(after) == numbers(before)
    assert all(torch.equal(after[0][name][-1], before[0][name][-1]) for name in before[0])
    assert torch.equal(torch.get_rng_state(), random)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_the_model_stays_as_it_was_after_an_exception(error):
    model = with_statistics(ReadTwice())
    settings = select_inference(model, images(), CPU)
    weight, strides = model.stem.weight.data_ptr(), model.stem.weight.stride()
    with suppress(RuntimeError, KeyboardInterrupt), inference(model, settings, CPU):
        assert "forward" in vars(model.stem)
        assert model.stem.weight.stride() != strides
        raise error
    assert "forward" not in vars(model.stem)
    assert (model.stem.weight.data_ptr(), model.stem.weight.stride()) == (weight, strides)


def test_the_selection_reads_no_clock(case, monkeypatch):
    model, size, *_ = case
    first = select_inference(model, images(size=size), CPU)
    for name in ("time", "monotonic", "perf_counter", "process_time"):
        monkeypatch.setattr(f"time.{name}", None)
    assert select_inference(model, images(size=size), CPU) == first


def test_two_predictions_are_equal_bit_for_bit(case):
    model, size, *_ = case
    first, second = (predict(model, labeled(20, size)).logits for _ in range(2))
    assert torch.equal(first, second)


def test_the_size_of_the_given_batches_changes_no_bit():
    model = with_statistics(ReadTwice())
    # 64 images of 32x32 pixels are one batch; given batches divide it or are several of it.
    results = [predict(model, labeled(256, 32, size)).logits for size in (16, 64, 128, 256)]
    assert all(torch.equal(result, results[0]) for result in results)


def test_settings_survive_json():
    model = with_statistics(ReadTwice())
    settings = select_inference(model, images(), CPU)
    assert settings.folds == (("stem", "bn"),)
    assert Inference.from_json(settings.to_json()) == settings


@pytest.mark.parametrize(("size", "expected"), [(32, 64), (224, 8), (8, 1024)])
def test_a_batch_has_65536_pixels_and_at_least_8_images(size, expected):
    assert default_batch_size(torch.zeros(1, 3, size, size), CPU) == expected


@pytest.mark.parametrize(
    ("total", "number"), [(None, 8), (1, 2), (64, 2), (128, 4), (10**6, 8)]
)
def test_few_images_are_verified_of_few(total, number):
    assert verified_images(total) == number


def test_batches_of_one_image_stay_as_they_are():
    settings = select_inference(with_statistics(ReadTwice()), images(1), CPU)
    assert settings == Inference(None, channels_last=True, folds=(("stem", "bn"),))


# The model as it is written, where something else could depend on its modules.


def hooked(model):
    model.norm.register_forward_hook(lambda _m, _x, out: out + 1)
    return model


def patched(model):
    before = model.conv.forward
    model.conv.forward = lambda x: 2 * before(x)
    return model


def scripted(model):
    return torch.jit.trace(model, images(2), check_trace=False)


def compiled(model):
    return torch.compile(model, backend="eager")


def compiled_in_place(model):
    model.compile(backend="eager")
    return model


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (hooked, "it has hooks or a replaced forward"),
        (patched, "it has hooks or a replaced forward"),
        (scripted, "it is scripted"),
        (compiled, "it is compiled"),
        (compiled_in_place, "it is compiled"),
        (nn.DataParallel, "it is replicated"),
    ],
)
def test_a_model_that_something_else_may_depend_on_runs_as_it_is_written(change, reason):
    model = change(with_statistics(ReadTwice())).eval()
    settings = select_inference(model, images(), CPU)
    assert settings == Inference(reason=reason)
    batches = labeled(20)
    result = predict(model, batches)
    assert result.provenance.inference == f"as written ({reason})"
    assert result.provenance.batch_size == 7
    with torch.no_grad():
        assert torch.equal(result.logits, torch.cat([model(x) for x, _ in batches]))


@pytest.mark.filterwarnings("ignore")  # torch announces another package for it
def test_a_quantized_model_runs_as_it_is_written():
    model = torch.ao.quantization.quantize_dynamic(with_statistics(ReadTwice()), {nn.Linear})
    assert select_inference(model, images(), CPU).reason == "it is quantized"


def test_a_model_whose_logits_depend_on_the_batch_keeps_its_batches():
    class Centering(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = nn.Conv2d(3, 8, 3), nn.Linear(8, 5)

        def forward(self, x):
            y = self.conv(x).mean((2, 3))
            return self.head(y - y.mean(0))

    model = Centering().eval()
    settings = select_inference(model, images(), CPU)
    assert settings == Inference(reason="its logits depend on the other images of a batch")
    batches = labeled(20)
    with torch.no_grad():
        expected = torch.cat([model(x) for x, _ in batches])
    assert torch.equal(predict(model, batches).logits, expected)


class Changed(nn.Module):
    """Logits of each image by itself, which a function of them and the images changes."""

    def __init__(self, change):
        super().__init__()
        self.conv, self.head, self.change = nn.Conv2d(3, 8, 3), nn.Linear(8, 5), change

    def forward(self, x):
        return self.change(self.head(self.conv(x).mean((2, 3))), x)


def raising(error, fits):
    """Raises an error where a batch has a number of images that does not fit."""

    def change(logits, images):
        if not fits(len(images)):
            raise error
        return logits

    return Changed(change).eval()


@pytest.mark.parametrize(
    "error", [AssertionError, ZeroDivisionError, NotImplementedError, RuntimeError]
)
@pytest.mark.parametrize("sizes", [(16, 16, 5), (16, 16, 16)])
def test_a_model_that_fails_on_one_image_runs_in_the_given_batches(error, sizes):
    model = raising(error, lambda n: n > 1)
    batches = [(images(n), torch.zeros(n, dtype=int)) for n in sizes]
    with torch.no_grad():
        expected = torch.cat([model(x) for x, _ in batches])
    result = predict(model, batches)
    assert torch.equal(result.logits, expected)
    assert result.provenance.inference == "as written (it fails on a batch of 1 image)"


def test_a_model_of_one_batch_size_runs_in_the_given_batches():
    model = raising(RuntimeError, lambda n: n == 16)
    batches = [(images(16, seed=seed), torch.zeros(16, dtype=int)) for seed in range(3)]
    with torch.no_grad():
        expected = torch.cat([model(x) for x, _ in batches])
    result = predict(model, batches)
    assert torch.equal(result.logits, expected)
    assert result.provenance.inference == "as written (it fails on a batch of 2 images)"


def test_errors_of_the_model_for_the_given_batches_are_raised():
    model = raising(ZeroDivisionError("as the model says"), lambda n: n == 8)
    batches = [(images(n), torch.zeros(n, dtype=int)) for n in (8, 5)]
    with pytest.raises(ZeroDivisionError, match="as the model says"):
        predict(model, batches)


def test_the_reason_of_random_logits_is_that_passes_differ():
    model = Changed(lambda logits, _: nn.functional.dropout(logits, 0.5, training=True)).eval()
    settings = select_inference(model, images(), CPU)
    reason = "its logits differ between two passes of the same images"
    assert settings == Inference(reason=reason)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_the_reason_of_logits_that_are_not_finite_is_that(value):
    model = Changed(lambda logits, _: logits + torch.tensor([0, 0, value, 0, 0])).eval()
    settings = select_inference(model, images(), CPU)
    assert settings == Inference(reason="its logits are not finite")


def test_classes_that_are_ruled_out_by_minus_infinity_change_no_settings():
    mask = torch.tensor([0, 0, -torch.inf, 0, 0])
    model = Changed(lambda logits, _: logits + mask).eval()
    assert select_inference(model, images(), CPU) == Inference(64, channels_last=True)
    assert (predict(model, labeled(20)).logits[:, 2] == -torch.inf).all()


def test_complex_logits_are_refused_in_a_sentence():
    model = Changed(lambda logits, _: torch.complex(logits, logits)).eval()
    with pytest.raises(InputError, match="must be real logits, got complex64 of Changed"):
        predict(model, labeled(20))


def test_a_norm_that_is_called_by_keyword_is_not_folded():
    class ByKeyword(ReadTwice):
        def forward(self, x):
            return self.head(self.bn(input=self.stem(x)).mean((2, 3)))

    settings = select_inference(with_statistics(ByKeyword()), images(), CPU)
    assert settings == Inference(64, channels_last=True)


def test_settings_whose_logits_differ_are_refused(monkeypatch):
    """A wrong fold is noticed by the comparison, not trusted."""
    from visprism.measure.inference import batch_norm_folding

    kernel = batch_norm_folding._kernel
    monkeypatch.setattr(
        batch_norm_folding, "_kernel", lambda *pair: (1.01 * kernel(*pair)[0], kernel(*pair)[1])
    )
    settings = select_inference(with_statistics(ReadTwice()), images(), CPU)
    assert settings.folds == ()
    assert settings.channels_last


def test_buffers_that_a_pass_changes_are_restored():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(3, 5)
            self.register_buffer("passes", torch.zeros(()))

        def forward(self, x):
            self.passes += 1
            return self.head(x.mean((2, 3))) + 0 * torch.rand(())

    model, state = Counting().eval(), torch.get_rng_state()
    select_inference(model, images(), CPU)
    assert model.passes == 0
    assert torch.equal(torch.get_rng_state(), state)


# Precision.


def test_full_precision_stays_full_precision_and_lower_is_within_eight_roundings():
    model = with_statistics(copy.deepcopy(ReadTwice()))
    low = Compute(precision="bf16")
    plain = predict(model, labeled(20), run=Run(low, inference=Inference()))
    selected = predict(model, labeled(20), run=Run(low))
    assert selected.provenance.precision == "bf16"
    assert predict(model, labeled(20)).provenance.precision == "fp32"
    reach = 8 * torch.finfo(torch.bfloat16).eps * plain.logits.abs().max()
    assert (selected.logits - plain.logits).abs().max() <= reach


# Images of several shapes and names.


def test_images_of_several_sizes_stay_in_their_order():
    model = with_statistics(ReadTwice())
    batches = [(images(3, side, side), torch.full((3,), side % 5)) for side in (32, 32, 48, 32)]
    with torch.no_grad():
        expected = torch.cat([model(x) for x, _ in batches])
    result = predict(model, iter(batches))
    torch.testing.assert_close(result.logits, expected, rtol=1e-4, atol=1e-5)
    assert result.targets.tolist() == [t for _, targets in batches for t in targets.tolist()]


def test_images_in_a_mapping_are_joined_by_name():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = with_statistics(ReadTwice())

        def forward(self, pixel_values):
            return self.inner(pixel_values)

    model = Named().eval()
    batches = labeled(20)
    named = [({"pixel_values": x}, y) for x, y in batches]
    assert torch.equal(predict(model, named).logits, predict(model.inner, batches).logits)
