"""Laws of the model ``alternet`` (src/visprism/harmonize/alternet.py)."""

import subprocess
import sys

import pytest
import torch

from visprism import InputError, MSAConfig, harmonize_model, load_model, read_metadata
from visprism.harmonize.alternet import save_alternet


@pytest.fixture
def saved(tmp_path, images):
    """A harmonized ResNet-20 and the name by which it is loaded."""
    network = load_model("resnet20?num_classes=7")
    names, msa = ("layer3.0", "layer3.2"), MSAConfig(heads=(1, 2, 4), head_dim=8)
    options = {"heads": msa.heads, "head_dim": msa.head_dim}
    model = harmonize_model(network.model, images, names, **options)
    cnn = "resnet20?num_classes=7@weights.pt"
    text = save_alternet(model, network, tmp_path, cnn=cnn, names=names, msa=msa)
    return model, network, text


@torch.no_grad()
def test_a_saved_network_is_loaded_by_its_file_alone(saved, images, tmp_path):
    model, network, text = saved
    assert text == str(tmp_path / "alternet.safetensors")
    loaded = load_model(text)
    torch.testing.assert_close(loaded.model(images), model(images), rtol=0, atol=0)
    assert loaded.preprocessing == network.preprocessing
    assert loaded.trained
    assert read_metadata(text).provenance.model == (
        "alternet?base=resnet20&blocks=layer3.0+layer3.2&heads=1+2+4&head_dim=8&window=8"
        "&num_classes=7"
    )


@pytest.mark.slow
def test_a_network_is_named_in_a_fresh_process():
    """Where the package of the conversion was not imported before."""
    code = (
        "from visprism import load_model;"
        "print(type(load_model('alternet?base=resnet20').model.layer3[2]).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "PostActMSABlock", done.stderr


@torch.no_grad()
@pytest.mark.parametrize(
    ("blocks", "placement"),
    [("0+1+2", (0, 1, 2)), ("none", ())],
)
def test_its_weights_are_those_of_the_cnn_and_the_conversion(blocks, placement, images):
    """With its weights, the network of `harmonize` gives the same logits."""
    named = load_model(f"alternet?base=resnet20&blocks={blocks}&head_dim=8").model
    twin = harmonize_model(load_model("resnet20").model, images, placement, head_dim=8)
    twin.load_state_dict(named.state_dict())
    torch.testing.assert_close(named(images), twin.eval()(images), rtol=0, atol=0)


NUMBERED = """
from torch.nn import AdaptiveAvgPool2d, Conv2d, Flatten, Linear, Sequential
from torchvision.models.resnet import BasicBlock
def cnn():
    ends = AdaptiveAvgPool2d(1), Flatten(), Linear(8, 4)
    return Sequential(Conv2d(3, 8, 3), BasicBlock(8, 8), BasicBlock(8, 8), *ends)
"""


def test_a_cnn_of_a_file_is_named_by_the_user_and_not_by_metadata(tmp_path, images):
    names = ("1", "2")
    (tmp_path / "mine.py").write_text(NUMBERED)
    cnn = f"{tmp_path / 'mine.py'}:cnn"
    network = load_model(cnn)
    model = harmonize_model(network.model, images, names)
    text = save_alternet(model, network, tmp_path, cnn=cnn, names=names, msa=MSAConfig())
    assert text.startswith(f"alternet?base={cnn}&blocks=1+2+&window=")
    state = load_model(text).model.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
    with pytest.raises(InputError, match="does not name its model"):
        load_model(str(tmp_path / "alternet.safetensors"))
