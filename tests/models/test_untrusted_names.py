"""Laws of names that files state (src/visprism/models/sources.py): they never run code.

Each attack would leave a file behind, so a test looks for that file, not only for an error.
"""

import json
import subprocess

import pytest
import torch
import transformers
from small_models import hugging_face_config

from visprism import InputError, Provenance, load_model, save_checkpoint
from visprism.models.sources import stored_model_name
from visprism.models.spec import ModelSpec

CODE = "from pathlib import Path\nPath({ran!r}).touch()\n"


@pytest.fixture
def ran(tmp_path):
    """A file that exists if an attack has run code."""
    return tmp_path / "ran"


def checkpoint_naming(model, path):
    """A checkpoint of ResNet-20 whose metadata name another model."""
    network = load_model("resnet20?num_classes=4").model
    save_checkpoint(network, path, provenance=Provenance(model=model))
    return path


@pytest.mark.parametrize("suffix", ["", "@", "@other.pt", "?num_classes=4"])
def test_a_function_of_the_standard_library_is_not_called(tmp_path, ran, suffix):
    text = f"{subprocess.__file__}:getoutput?cmd=touch {ran}{suffix}"
    path = checkpoint_naming(text, tmp_path / "a.safetensors")
    with pytest.raises(InputError, match=r"is refused: .*Name the model before the file, as f"):
        load_model(str(path))
    assert not ran.exists()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("net.py:net", "must not name code"),
        ("net.py", "not a model name"),
        ("os:system", "not a model name"),
        ("timm:../resnet18", "must not name a path"),
        ("timm:hf-hub:a/b", "must not name a path"),
        ("hf:a/../b", "must not name a path"),
        ("hf:~/folder", "must not name a path"),
        ("hf:\\\\host\\share", "must not name a path"),
        ("hf:a/b?trust_remote_code=True", "must not set trust_remote_code"),
        ("hf:a/b?_attn_implementation=a", "must not set _attn_implementation"),
        ("timm:resnet18?checkpoint_path=a.pt", "must not set checkpoint_path"),
        ("timm:resnet18?pretrained=True", "must not set pretrained"),
        ("timm:resnet18?pretrained_cfg_overlay={'file': 'a.pt'}", "must not set pretrained"),
        ("timm:resnet18?act_layer=a/b.py", "act_layer must be a number, a boolean, a string"),
        ("timm:resnet18?a=('/etc', 1)", "a must be a number"),
        ("resnet20?a=x y", "a must be a number"),
        ("resnet20\nos.py:system", "not a model name|must not name"),
        ("", "not a model name"),
        ("?a=1", "not a model name"),
    ],
)
def test_metadata_name_registered_architectures_only(tmp_path, text, reason):
    with pytest.raises(InputError, match=reason):
        stored_model_name(text, tmp_path / "a.safetensors")


@pytest.mark.parametrize(
    "text",
    [
        "resnet20",
        "resnet20?num_classes=100",
        "timm:vit_tiny_patch16_224.augreg_in21k?img_size=32&patch_size=4&drop_path_rate=0.1",
        "timm:vit_tiny_patch16_224?img_size=(32, 48)&class_token=False&global_pool=avg",
        "torchvision:swin_t?window_size=[7, 7]",
        "hf:google/vit-base-patch16-224?num_labels=10",
    ],
)
def test_architectures_with_plain_options_are_accepted(tmp_path, text):
    assert stored_model_name(text, tmp_path / "a.safetensors") == text


def test_a_checkpoint_that_names_its_architecture_stands_alone(tmp_path):
    for text in ("resnet20?num_classes=4", "resnet20?num_classes=4@start.pt"):
        path = checkpoint_naming(text, tmp_path / "a.safetensors")
        loaded = load_model(str(path)).model
        expected = load_model(f"resnet20?num_classes=4@{path}").model.state_dict()
        torch.testing.assert_close(loaded.state_dict(), expected, rtol=0, atol=0)


@pytest.mark.parametrize("value", ["-" * 100_000 + "1", "(" * 100_000, "[" * 5000 + "]" * 5000])
def test_a_deeply_nested_option_ends_in_a_sentence(tmp_path, value):
    spec = ModelSpec.parse(f"resnet20?num_classes={value}")
    assert spec.arguments == {"num_classes": value}  # text, which is no number of classes
    path = checkpoint_naming(spec.text, tmp_path / "a.safetensors")
    with pytest.raises(InputError, match=r"num_classes .*must be"):
        load_model(str(path))


class Attack:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("option", ["checkpoint_path", "pretrained_cfg_overlay", "cache_dir"])
@pytest.mark.parametrize("source", ["timm:resnet18", "torchvision:resnet18"])
def test_libraries_never_read_a_checkpoint_by_themselves(tmp_path, ran, source, option):
    torch.save({"state_dict": Attack(ran)}, tmp_path / "a.pt")
    with pytest.raises(InputError, match=rf"no argument '{option}'.*Name a checkpoint as "):
        load_model(f"{source}?{option}={tmp_path / 'a.pt'}")
    assert not ran.exists()


def folder_with(tmp_path, **config):
    """A folder of Hugging Face with a small ViT's configuration, changed."""
    stated = hugging_face_config().to_dict()
    (tmp_path / "config.json").write_text(json.dumps(stated | config))
    return tmp_path


AUTO_MAPS = [
    {"AutoConfig": "code.Config"},
    {"AutoConfig": "code.Config", "AutoModelForImageClassification": "code.Model"},
]


@pytest.mark.parametrize("auto_map", AUTO_MAPS, ids=["configuration", "and model"])
def test_code_in_a_folder_does_not_run(tmp_path, ran, monkeypatch, auto_map):
    monkeypatch.setattr("builtins.input", lambda _="": "y")  # nobody is asked
    folder = folder_with(tmp_path, auto_map=auto_map, model_type="unknown")
    (folder / "code.py").write_text(CODE.format(ran=str(ran)))
    with pytest.raises(InputError, match=r"is not run.*\?trust_remote_code=True\."):
        load_model(f"hf:{folder}")
    assert not ran.exists()


@pytest.mark.parametrize(
    "config",
    [transformers.DetrConfig(), transformers.TimmBackboneConfig(backbone="hf-hub:a/b")],
    ids=["detector", "timm"],
)
def test_a_configuration_that_loads_another_model_is_refused(tmp_path, config):
    config.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="names another model that it loads"):
        load_model(f"hf:{tmp_path}")


@pytest.mark.parametrize("auto_map", AUTO_MAPS, ids=["configuration", "and model"])
def test_of_a_known_architecture_the_class_of_the_library_is_built(tmp_path, ran, auto_map):
    folder = folder_with(tmp_path, auto_map=auto_map)
    (folder / "code.py").write_text(CODE.format(ran=str(ran)))
    model = load_model(f"hf:{folder}").model
    assert type(model) is transformers.ViTForImageClassification
    assert not ran.exists()


def test_code_that_the_user_trusts_runs(tmp_path, ran):
    folder = folder_with(tmp_path, auto_map=AUTO_MAPS[0], model_type="unknown")
    (folder / "code.py").write_text(CODE.format(ran=str(ran)) + "raise RuntimeError('mine')")
    with pytest.raises(InputError, match="cannot be built: RuntimeError: mine"):
        load_model(f"hf:{folder}?trust_remote_code=True")
    assert ran.exists()


def test_code_of_an_image_processor_does_not_run(tmp_path, ran, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda _="": "y")
    folder = folder_with(tmp_path)
    (folder / "preprocessor_config.json").write_text(
        json.dumps(
            {"image_processor_type": "Mine", "auto_map": {"AutoImageProcessor": "code.Mine"}}
        )
    )
    (folder / "code.py").write_text(CODE.format(ran=str(ran)))
    with pytest.raises(InputError, match=r"contains Python code, which is not run"):
        load_model(f"hf:{folder}")
    assert not ran.exists()


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"architecture": "local-dir:/folder"}, "is not a name of timm"),
        ({"model_args": {"checkpoint_path": "a.pt"}}, "model_args=.* must be numbers"),
        ({"model_args": {"act_layer": "a/b"}}, "model_args=.* must be numbers"),
    ],
)
def test_the_wrapper_of_timm_builds_architectures_only(tmp_path, ran, config, reason):
    torch.save({"state_dict": Attack(ran)}, tmp_path / "a.pt")
    stated = {"model_type": "timm_wrapper", "architecture": "resnet18", "num_classes": 4}
    stated |= config
    (tmp_path / "config.json").write_text(json.dumps(stated))
    with pytest.raises(InputError, match=rf"configuration of .* is refused: .*{reason}"):
        load_model(f"hf:{tmp_path}")
    assert not ran.exists()


def test_pickled_weights_in_a_folder_do_not_run(tmp_path, ran):
    folder = folder_with(tmp_path)
    torch.save({"classifier.weight": Attack(ran)}, folder / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"cannot be built"):
        load_model(f"hf:{folder}")
    assert not ran.exists()
