"""Laws of published weights: the default, and files of other packages and image sizes."""

import json
import socket
from time import monotonic

import pytest
import timm
import torch
from timm.models.vision_transformer import checkpoint_filter_fn
from torchvision.models import VisionTransformer

from visprism import InputError, load_model, save_checkpoint

VIT = "timm:vit_tiny_patch16_224"


@pytest.fixture
def no_network(monkeypatch, tmp_path):
    """A machine without files of earlier downloads, whose connections are refused."""

    def refuse(*_, **__):
        raise OSError("no route to host")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr("visprism.models.sources.create_connection", refuse)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))


@pytest.mark.parametrize("name", ["timm:resnet18", "torchvision:resnet18", "hf:a/vit-base"])
def test_published_weights_are_the_default_and_without_a_network_that_is_said(name, no_network):
    start = monotonic()
    with pytest.raises(InputError, match=r"could not be downloaded .*--random-weights"):
        load_model(name)
    assert monotonic() - start < 10  # 3 seconds, where no other process takes the machine


def test_a_repository_of_timm_on_the_hub_has_its_names(no_network, tmp_path):
    stored = timm.create_model("test_vit", num_classes=7).eval()
    stored.pretrained_cfg["mean"] = (0.1, 0.2, 0.3)
    folder = tmp_path / "models--someone--net"
    timm.models.save_for_hf(stored, folder / "snapshots" / "0")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("0")
    for prefix in ("hf-hub", "hf_hub"):  # of timm's documentation, today's and an earlier one
        loaded = load_model(f"timm:{prefix}:someone/net")
        assert loaded.preprocessing.mean == (0.1, 0.2, 0.3)
        torch.testing.assert_close(loaded.model.state_dict(), stored.state_dict())
    with pytest.raises(InputError, match=r"must be a name of timm.* timm:hf-hub:someone/net"):
        load_model("timm:someone/net")
    with pytest.raises(InputError, match=r"could not be downloaded \(no network\)"):
        load_model("timm:hf-hub:someone/other")


def test_a_repository_of_timm_names_no_file_of_this_machine(no_network, tmp_path):
    folder = tmp_path / "models--someone--net"
    (folder / "snapshots" / "0").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("0")
    arguments = {"checkpoint_path": "/etc/passwd"}
    config = {"architecture": "test_vit", "pretrained_cfg": {}, "model_args": arguments}
    (folder / "snapshots" / "0" / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="configuration of someone/net is refused: model_args"):
        load_model("timm:hf-hub:someone/net")


def test_position_embeddings_of_another_image_size_are_resampled_as_timm_does(tmp_path, caplog):
    stored = load_model(f"{VIT}?depth=1&img_size=64&pretrained=False").model
    save_checkpoint(stored, tmp_path / "a.safetensors")
    loaded = load_model(f"{VIT}?depth=1&img_size=96@{tmp_path}/a.safetensors").model
    expected = checkpoint_filter_fn(stored.state_dict(), loaded)
    torch.testing.assert_close(loaded.state_dict(), expected, rtol=0, atol=0)
    assert "was resampled from 4x4 to 6x6 positions" in caplog.text


class SmallViT(VisionTransformer):
    """Of torchvision, with one small layer in place of its 86 million parameters."""

    def __init__(self, image_size, patch_size, **_):
        super().__init__(image_size, patch_size, 1, 2, 24, 48)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("vit_pico_patch4_32", "img_size=48"),
        ("pit_pico_patch4_32", "img_size=40"),
        ("torchvision:vit_b_16", "image_size=64"),
    ],
)
def test_networks_of_other_libraries_get_them_too(tmp_path, monkeypatch, name, other):
    monkeypatch.setattr("torchvision.models.vision_transformer.VisionTransformer", SmallViT)
    stored = load_model(name, pretrained=False).model
    save_checkpoint(stored, tmp_path / "a.safetensors")
    loaded = load_model(f"{name}?{other}@{tmp_path}/a.safetensors").model
    same = [
        k for k, v in stored.state_dict().items() if v.shape == loaded.state_dict()[k].shape
    ]
    assert len(same) == len(stored.state_dict()) - 1
    assert all(torch.equal(stored.state_dict()[k], loaded.state_dict()[k]) for k in same)
