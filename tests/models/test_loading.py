"""Laws of loading a model by name (src/visprism/models/loading.py, spec.py, sources.py)."""

import numpy as np
import pytest
import timm
import torch
import transformers
from PIL import Image
from safetensors.torch import save_file
from small_models import hugging_face_config

from visprism import InputError, load_model
from visprism.images.pixels import center_crop, normalized
from visprism.models.data_configs import preprocessing_from

SMALL_VIT = "timm:vit_tiny_patch16_224?img_size=32&patch_size=8&depth=1&num_classes=10"
SMALL_VIT += "&pretrained=False"

USER_FILE = """
from torch import nn
from neighbor import WIDTH

def network(width=WIDTH, img_size=None):
    model = nn.Conv2d(3, width, 3)
    if img_size:
        model.img_size = img_size
    return model

def number():
    return 3

def fails():
    raise RuntimeError("out of ideas")
"""


@pytest.fixture
def user_file(tmp_path):
    (tmp_path / "neighbor.py").write_text("WIDTH = 7")
    (tmp_path / "mine.py").write_text(USER_FILE)
    return tmp_path / "mine.py"


@pytest.fixture
def hugging_face_folder(tmp_path):
    """A ViT as its config alone: no weights, no image processor."""
    hugging_face_config().save_pretrained(tmp_path)
    return tmp_path


def weights(loaded):
    return dict(loaded.model.named_parameters())


def test_timm_takes_arguments_and_says_how_it_wants_its_images():
    loaded = load_model(SMALL_VIT)
    assert loaded.model(torch.zeros(1, 3, 32, 32)).shape == (1, 10)
    assert not loaded.model.training
    assert loaded.preprocessing.size == (32, 32)
    assert loaded.preprocessing.mean == (0.5, 0.5, 0.5)  # AugReg's ViTs, not ImageNet's values
    assert loaded.name == f"{SMALL_VIT} (random weights)"
    assert loaded.label == "vit_tiny_patch16_224 (random weights)"


def test_weights_that_state_no_normalization_get_none(tmp_path):
    """A state dict of the zoo; the shipped weights and checkpoints of visprism state theirs."""
    torch.save(load_model("resnet20.cifar10").model.state_dict(), tmp_path / "plain.pt")
    for name in (f"resnet20@{tmp_path / 'plain.pt'}", "resnet20"):
        preprocessing = load_model(name).preprocessing
        assert (preprocessing.size, preprocessing.std) == ((32, 32), (1.0,) * 3)
        assert not preprocessing.stated
    assert load_model("resnet20.cifar10").preprocessing.stated


def test_torchvision_uses_the_transforms_of_its_weights():
    preprocessing = load_model("torchvision:swin_t", pretrained=False).preprocessing
    assert preprocessing.size == (224, 224)
    assert preprocessing.crop == pytest.approx(224 / 232)  # resize 232, crop 224
    assert preprocessing.interpolation == "bicubic"


def test_a_function_in_a_file_that_imports_its_neighbor(user_file, tmp_path):
    loaded = load_model(f"{user_file}:network")
    assert loaded.model.out_channels == 7
    assert loaded.label == "network"  # only the user knows what its weights are
    assert load_model(f"{user_file}:network?width=5").model.out_channels == 5
    sized = load_model(f"{user_file}:network?img_size=48").preprocessing
    assert (sized.size, sized.mean, sized.stated) == ((48, 48), (0.0,) * 3, False)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "neighbor.py").write_text("WIDTH = 9")
    other = user_file.rename(tmp_path / "other" / "mine.py")
    assert load_model(f"{other}:network").model.out_channels == 9


def test_a_hugging_face_folder_without_weights(hugging_face_folder):
    loaded = load_model(f"hf:{hugging_face_folder}?num_hidden_layers=2")
    assert loaded.model.config.num_hidden_layers == 2
    assert (loaded.preprocessing.size, loaded.preprocessing.stated) == ((32, 32), False)
    assert loaded.label.endswith("(random weights)")


def test_a_hugging_face_folder_with_weights_gives_them_without_being_asked(hugging_face_folder):
    stored = load_model(f"hf:{hugging_face_folder}", seed=5)
    stored.model.save_pretrained(hugging_face_folder)
    loaded = load_model(f"hf:{hugging_face_folder}")
    torch.testing.assert_close(weights(loaded), weights(stored), rtol=0, atol=0)
    assert "random" not in loaded.name


TINY = {"hidden_size": 24, "num_attention_heads": 2, "num_hidden_layers": 1}
VISION = TINY | {"image_size": 32, "patch_size": 8, "intermediate_size": 48}


def test_weights_or_a_folder_without_a_model_say_what_to_write(tmp_path):
    weights = tmp_path / "tuned.pt"
    torch.save({}, weights)
    with pytest.raises(InputError, match=rf"Write MODEL@FILE, such as resnet20@{weights}"):
        load_model(str(weights))
    with pytest.raises(InputError, match=rf"is a folder\. Write hf:{tmp_path} for"):
        load_model(str(tmp_path))


@pytest.mark.parametrize(
    ("model", "part"),
    [
        (lambda: transformers.Dinov2Model(transformers.Dinov2Config(**VISION)), ""),
        (
            lambda: transformers.CLIPModel(
                transformers.CLIPConfig(
                    text_config=TINY | {"vocab_size": 50}, vision_config=VISION
                )
            ),
            "vision_model",
        ),
    ],
    ids=["a backbone", "images and text"],
)
def test_a_hugging_face_model_without_classes_is_a_backbone(model, part, tmp_path):
    stored = model().eval()
    stored.save_pretrained(tmp_path)
    loaded = load_model(f"hf:{tmp_path}").model.eval()
    images = torch.randn(2, 3, 32, 32)
    expected = stored.get_submodule(part)(images).pooler_output
    torch.testing.assert_close(loaded(images).pooler_output, expected)


def test_a_part_without_weights_is_named(tmp_path, caplog):
    config = transformers.ViTConfig(**VISION)
    transformers.ViTModel(config, add_pooling_layer=False).save_pretrained(tmp_path)
    load_model(f"hf:{tmp_path}")
    assert "lacks pooler.dense.bias, pooler.dense.weight, which is random" in caplog.text


def test_weights_of_another_hugging_face_model_are_refused(hugging_face_folder):
    named = {f"tower.{i}": torch.zeros(2) for i in range(3)}
    save_file(named, hugging_face_folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        InputError, match=r"must have the weights of a ViTForImage.* are missing, such"
    ):
        load_model(f"hf:{hugging_face_folder}")


SQUARE = {"height": 28, "width": 28}
EDGE = {"shortest_edge": 28}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("ViT", {"size": {"height": 24, "width": 32}}),
        ("DeiT", {"size": {"height": 32, "width": 32}, "crop_size": SQUARE}),
        ("CLIP", {"size": {"shortest_edge": 40}, "crop_size": SQUARE}),
        ("ConvNext", {"size": EDGE}),
        ("ConvNext", {"size": {"shortest_edge": 384}}),
        ("PoolFormer", {"size": EDGE, "crop_size": SQUARE}),
        ("Levit", {"size": EDGE, "crop_size": SQUARE}),
        ("EfficientNet", {"size": SQUARE, "image_mean": [0.4] * 3}),
        ("Perceiver", {"size": SQUARE, "crop_size": {"height": 32, "width": 32}}),
        ("MobileViT", {"size": EDGE, "crop_size": SQUARE, "do_flip_channel_order": False}),
    ],
)
def test_a_hugging_face_image_processor_is_followed(hugging_face_folder, kind, options):
    processor = getattr(transformers, f"{kind}ImageProcessor")(**options)
    processor.save_pretrained(hugging_face_folder)
    preprocessing = load_model(f"hf:{hugging_face_folder}").preprocessing
    ramp = np.add.outer(np.arange(60), np.arange(96))
    image = Image.fromarray(np.stack([ramp, ramp[::-1], 90 + ramp], -1).astype(np.uint8))
    expected = processor(image, return_tensors="pt")["pixel_values"]
    pixels = torch.tensor(np.array(center_crop(image, preprocessing))).permute(2, 0, 1)[None]
    torch.testing.assert_close(normalized(pixels, preprocessing), expected, rtol=0, atol=0.06)


def test_images_that_a_processor_turns_to_bgr_are_refused(hugging_face_folder):
    transformers.MobileViTImageProcessor().save_pretrained(hugging_face_folder)
    with pytest.raises(InputError, match="must be RGB, got BGR"):
        load_model(f"hf:{hugging_face_folder}")


def test_a_network_of_timm_squashes_its_images_or_crops_them():
    stated = {"input_size": (3, 24, 24), "mean": (0.5,) * 3, "std": (0.5,) * 3}
    image = Image.fromarray(np.arange(30 * 60 * 3, dtype=np.uint8).reshape(30, 60, 3))
    for mode in ("center", "squash"):
        config = {**stated, "interpolation": "bicubic", "crop_pct": 0.75, "crop_mode": mode}
        preprocessing = preprocessing_from(config)
        assert ("squashed" in str(preprocessing)) == (mode == "squash")
        expected = timm.data.create_transform(**timm.data.resolve_data_config(config))(image)
        pixels = torch.tensor(np.array(center_crop(image, preprocessing))).permute(2, 0, 1)[
            None
        ]
        torch.testing.assert_close(normalized(pixels, preprocessing)[0], expected)


def test_random_weights_follow_from_the_seed_alone():
    first = load_model(SMALL_VIT)
    torch.rand(3)
    again, other = load_model(SMALL_VIT), load_model(SMALL_VIT, seed=1)
    torch.testing.assert_close(weights(first), weights(again), rtol=0, atol=0)
    assert not torch.equal(first.model.head.weight, other.model.head.weight)


def test_the_randomness_of_the_program_is_left_alone():
    def states():
        # Not Python's own: the type checker of the test suite draws from it.
        return torch.get_rng_state().tolist(), repr(np.random.get_state())  # noqa: NPY002

    before = states()
    load_model(SMALL_VIT)
    assert states() == before


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("timm:resnet-18", r"unknown model 'timm:resnet-18'\. Did you mean timm:resnet18,"),
        ("resnet18", r"unknown model 'resnet18'\. Did you mean .*timm:resnet18,"),
        ("timm:qqqqqqqq", r"unknown model 'timm:qqqqqqqq'\. `visprism models` lists names"),
        ("tim:resnet18", r"unknown prefix 'tim:' in 'tim:resnet18'\. A model is timm:NAME"),
        ("timm:", r"'timm:' must name a model, such as timm:resnet18"),
        ("timm:resnet18?pretrained=3", "pretrained must be True or False, got 3"),
        ("timm:resnet18?depth", r"argument of a model must be key=value, got 'depth'"),
        ("timm:resnet18?in_chans=3&in_chans=1", r"argument 'in_chans' .* must be given once"),
        ("timm:resnet18?layerz=1", r"takes no argument 'layerz'\. Did you mean layers"),
        ("torchvision:vit_b_16?patchsize=3", r"'patchsize'\. Did you mean patch_size"),
        ("timm:vit_tiny_patch16_224?patch_size=0", r"cannot be built: ZeroDivisionError"),
        ("timm:resnet18@no.pt", r"the checkpoint no\.pt must be an existing file"),
        ("no.py:network", r"the file no\.py must exist"),
        ("no.py", r"no\.py must name the function that builds the model, as no\.py:FUNCTION"),
        ("hf:/no/such/folder", r"the folder /no/such/folder .* must exist"),
    ],
)
def test_a_model_that_is_not_there(text, sentence):
    with pytest.raises(ValueError, match=sentence):
        load_model(text)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        ("other", r"has no function 'other'\. It has network, number, fails"),
        ("number", r"must return a torch\.nn\.Module, got one of type int"),
        ("fails", r"cannot be built: RuntimeError: out of ideas \(.*mine\.py, line 15\)"),
        ("network?depth=3", r"takes no argument 'depth'\. It takes width"),
    ],
)
def test_a_file_that_gives_no_model(user_file, function, sentence):
    with pytest.raises(ValueError, match=sentence):
        load_model(f"{user_file}:{function}")


def test_a_hugging_face_config_does_not_swallow_an_unknown_argument(hugging_face_folder):
    with pytest.raises(ValueError, match=r"'foo'\. It takes the arguments of ViTConfig"):
        load_model(f"hf:{hugging_face_folder}?foo=3")
