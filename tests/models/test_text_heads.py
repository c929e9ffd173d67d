"""Text heads: CLIP with class names is a classifier whose logits are CLIP's."""

import json

import pytest
import torch
from PIL import Image

import visprism as vp

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clip")
    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = [*letters, *(c + "</w>" for c in letters), "<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({p: i for i, p in enumerate(pieces)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    tokenizer = transformers.CLIPTokenizer(
        str(folder / "vocab.json"), str(folder / "merges.txt")
    )
    tokenizer.save_pretrained(folder)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
    config = transformers.CLIPConfig(
        text_config={
            **sizes, "num_hidden_layers": 2, "vocab_size": len(pieces), "eos_token_id": 53,
            "max_position_embeddings": 40,
        },
        vision_config={**sizes, "num_hidden_layers": 2, "image_size": 32, "patch_size": 8},
        projection_dim=12,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.CLIPModel(config).save_pretrained(folder)
    (folder / "names.txt").write_text("red\ngreen\nblue\n")
    return folder


def test_the_logits_are_clips_and_the_task_is_retrieval(clip, tmp_path):
    text = f"hf:{clip}?classes={clip}/names.txt&template=a photo of a {{}}"
    loaded = vp.load_model(text)
    images = torch.rand(4, 3, 32, 32)
    model = transformers.CLIPModel.from_pretrained(clip).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(clip)
    tokens = tokenizer(
        [f"a photo of a {name}" for name in ("red", "green", "blue")],
        padding=True, return_tensors="pt",
    )  # fmt: skip
    with torch.no_grad():
        own = model(pixel_values=images, **tokens).logits_per_image
        torch.testing.assert_close(loaded.model(images), own, rtol=1e-5, atol=1e-5)
    for name in ("blue", "red"):
        (tmp_path / name).mkdir()
        for i in range(4):
            Image.new("RGB", (32, 32), (i, 9 * i, 200)).save(tmp_path / name / f"{i}.png")
    study = vp.examine(
        loaded, str(tmp_path), analyses=["performance", "variance"], size=(32, 32)
    )
    assert not study.failures
    (name,) = study.models
    assert study[name]["performance"].provenance.task == "retrieval"
