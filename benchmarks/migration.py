"""The same quantities from visprism and from the libraries that a user may come from.

    python benchmarks/migration.py --authors DIR --write

DIR is a clone of github.com/xxxnell/how-do-vits-work. The script runs in an environment with
visprism and the peers: pyhessian, loss_landscapes, torch_cka, imagecorruptions and torchattacks
(without its dependencies). What is not
installed is left out, with the reason. Each row has both numbers, or the largest difference of
many. The rows stand in benchmarks/results/migration.json and in docs/migration.md.
"""

import contextlib
import importlib
import io
import json
import sys
import tempfile
import types
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import options
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import visprism as vp
from visprism.analyses.loss.mode_connectivity import ModeConnectivity
from visprism.core.provenance import revision

RESULTS = Path(__file__).parent / "results" / "migration.json"
PAGE = Path(__file__).parents[1] / "docs" / "migration.md"
_TABLE = "| quantity | there | here | difference |\n|---|---|---|---|\n"
Row = dict[str, Any]

# Networks of the zoo, and how the authors' code makes them: module, function, arguments.
SMALL = {"stem": False}
NETWORKS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "resnet18_32": ("resnet", "dnn_18", SMALL),
    "resnet50_224": ("resnet", "dnn_50", {"stem": True}),
    "resnext50_32x4d_32": ("resnext", "dnn_50", SMALL),
    "wide_resnet50_2_32": ("wideresnet", "dnn_50", SMALL),
    "se_resnet50_32": ("seresnet", "dnn_50", SMALL),
    "cbam_resnet50_32": ("cbamresnet", "dnn_50", SMALL),
    "preact_resnet18_32": ("preresnet", "dnn_18", SMALL),
    "preact_resnet50_224": ("preresnet", "dnn_50", {"stem": True}),
    "alter_resnet50_32": ("alternet", "dnn_50", SMALL | {"window_size": 4}),
    "alter_resnet50_224": ("alternet", "dnn_50", {"stem": True}),
    "vgg11_bn_32": ("vggnet", "dnn_11", {}),
    "preact_vgg13_32": ("prevggnet", "dnn_13", {}),
    "alexnet_32": ("alexnet", "dnn", SMALL),
    "alexnet_224": ("alexnet", "dnn", {"stem": True}),
    "vit_tiny_patch2_32": ("vit", "tiny", {"image_size": 32, "patch_size": 2}),
    "vit_tiny_patch16_224": ("vit", "tiny", {}),
    "pit_tiny_patch2_32": ("pit", "tiny", {"image_size": 32, "patch_size": 2, "stride": 1}),
    "pit_small_224": ("pit", "small", {}),
    "mixer_tiny_patch2_32": ("mixer", "tiny", {"image_size": 32, "patch_size": 2}),
}


def pixels_of_shapes(number: int) -> tuple[Tensor, Tensor]:
    """Drawn shapes in 0 ... 1 and their classes."""
    data = vp.load_data("shapes?size=32", limit=number)
    pixels = np.stack([np.asarray(image) for image in data.read(range(number))])
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
    return images, torch.from_numpy(data.targets[:number]).long()


def shapes(number: int) -> tuple[Tensor, Tensor]:
    """Normalized drawn shapes and their classes."""
    images, targets = pixels_of_shapes(number)
    return (images - 0.5) / 0.25, targets


def checkpoints_of_the_authors() -> Iterator[Row]:
    for name, (module, function, arguments) in NETWORKS.items():
        torch.manual_seed(0)
        network = getattr(importlib.import_module(f"models.{module}"), function)(
            10, **arguments
        )
        for layer in network.modules():
            if isinstance(layer, nn.BatchNorm2d):
                nn.init.uniform_(layer.weight, 0.8, 1.2)
                for name_of, low, high in (("mean", -0.2, 0.2), ("var", 0.7, 1.3)):
                    nn.init.uniform_(layer.get_buffer(f"running_{name_of}"), low, high)
        side = int(name.rpartition("_")[2])
        images = torch.randn(2, 3, side, side)
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            path = Path(folder) / "network.pth.tar"
            torch.save({"name": network.name, "state_dict": network.state_dict()}, path)
            theirs = network.eval()(images)
            ours = vp.load_model(f"{name}@{path}").model(images)
        yield {
            "peer": "how-do-vits-work",
            "quantity": f"logits of {network.name} as {name}",
            "theirs": theirs.abs().max().item(),
            "ours": ours.abs().max().item(),
            "difference": (theirs - ours).abs().max().item(),
        }


def metrics_of_the_authors() -> Iterator[Row]:
    tests = importlib.import_module("ops.tests")
    images, targets = shapes(512)
    model = vp.load_model("resnet20.shapes").model
    model = nn.Sequential(model, Halved())  # less confident
    loader = DataLoader(TensorDataset(images, targets), batch_size=128)
    with contextlib.redirect_stdout(io.StringIO()):
        values = tests.test(model.eval(), 1, loader, gpu=False)
    metrics = vp.calibration(vp.predict(model, loader), bins=10)
    pairs = {"accuracy": values[3][0], "NLL": values[0], "ECE": values[-3]}
    for name, theirs in pairs.items():
        ours = float(getattr(metrics, name.lower()))
        yield row("how-do-vits-work", name, float(theirs), ours)


class Halved(nn.Module):
    """Half of each logit."""

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        return x / 2


def curvature() -> Iterator[Row]:
    from pyhessian import hessian  # pyrefly: ignore

    images, targets = shapes(64)
    torch.manual_seed(0)
    layers = nn.Flatten(), nn.Linear(3072, 16), nn.Tanh(), nn.Linear(16, 10)
    model = nn.Sequential(*layers).eval()
    peer = hessian(model, nn.CrossEntropyLoss(), data=(images, targets), cuda=False)
    values, _ = peer.eigenvalues(maxIter=1000, tol=1e-7, top_n=3)
    objective = vp.Objective(model, [(images, targets)])
    ours = vp.top_eigenvalues(objective, k=3, which="LM", tol=1e-6).value
    ours = ours[np.argsort(-np.abs(ours))]
    for number, (a, b) in enumerate(zip(values, ours, strict=True), 1):
        yield row("PyHessian", f"leading eigenvalue {number}", float(a), float(b))
    estimates = peer.trace(maxIter=2000, tol=1e-9)
    result = vp.trace(objective, probes=300)
    estimate = row("PyHessian", "trace", float(np.mean(estimates)), float(result.trace))
    yield estimate | {"their_error": float(np.std(estimates) / len(estimates) ** 0.5)}


def line_of_losses() -> Iterator[Row]:
    import loss_landscapes  # pyrefly: ignore
    from loss_landscapes.metrics import Loss  # pyrefly: ignore

    images, targets = shapes(128)
    start, end = (
        vp.load_model("vit_pico_patch4_32?num_classes=10", seed=s).model for s in (0, 1)
    )
    for model in (start, end):  # its classifier begins at zero
        generator = torch.Generator().manual_seed(3)
        nn.init.normal_(model.get_parameter("head.weight"), generator=generator)
    loss = Loss(nn.CrossEntropyLoss(), images, targets)
    steps = 11  # theirs are the points 1/11, ..., 11/11
    theirs = loss_landscapes.linear_interpolation(start, end, loss, steps, deepcopy_model=True)
    line, _ = ModeConnectivity(points=steps + 1).of(
        start, {"end": end.state_dict()}, [(images, targets)]
    )
    quantity = "losses at 11 points between two networks"
    yield many("loss-landscapes", quantity, theirs, line.nll[1:])


def similarity() -> Iterator[Row]:
    from torch_cka import CKA  # pyrefly: ignore

    images, targets = shapes(256)
    torch.manual_seed(0)
    first, second = (
        nn.Sequential(
            nn.Conv2d(3, 8, 3, 2), nn.Tanh(), nn.Conv2d(8, 8, 3, 2), nn.Tanh(), nn.Flatten()
        ).eval()
        for _ in range(2)
    )
    names = ["0", "1", "2", "3"]
    loader = DataLoader(TensorDataset(images, targets), batch_size=64)
    with contextlib.redirect_stderr(io.StringIO()):
        peer = CKA(first, second, model1_layers=names, model2_layers=names, device="cpu")
        peer.compare(loader)
    theirs = peer.export()["CKA"].numpy()
    a, b = (vp.layers(vp.dissect(model, images[:2])) for model in (first, second))
    wanted = vp.compare(a, b, loader).columns()["cka"].reshape(len(a), len(b))
    rows, columns = ([block.name for block in anatomy] for anatomy in (a, b))
    ours = wanted[np.ix_([rows.index(n) for n in names], [columns.index(n) for n in names])]
    yield many("torch-cka", "CKA of 4 x 4 layers of two networks", theirs, ours)


def corrupted_images() -> Iterator[Row]:
    from corruptions import patched  # pyrefly: ignore (beside this script)

    spec = importlib.util.find_spec("imagecorruptions")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'imagecorruptions'")
    peer = patched(Path(spec.origin).parents[1])
    data = vp.load_data("shapes?size=224", limit=4)
    pixels = np.stack([np.asarray(image) for image in data.read(range(4))])
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    names = ("brightness", "contrast", "saturate", "pixelate", "jpeg_compression")
    for name in (*names, "defocus_blur", "gaussian_blur"):
        if name not in vp.CORRUPTIONS:
            continue
        theirs = np.stack([peer(p, corruption_name=name, severity=3) for p in pixels])
        ours = vp.corrupt(images, name, 3).permute(0, 2, 3, 1).numpy()
        yield many("imagecorruptions", f"{name}, severity 3, in 0 ... 255", theirs, ours)


def attention_rollout() -> Iterator[Row]:
    """vit-explain's equations with heads averaged and no discarded weights."""
    model = vp.load_model("vit_tiny_patch2_32", seed=0).model
    images, _ = shapes(1)
    anatomy = vp.dissect(model, torch.cat([images, images]))
    with torch.no_grad(), vp.attend(anatomy, lambda w: w.values) as weights:
        model(images)
    product = torch.eye(257, dtype=torch.float64)
    for values in weights.values():
        fused = values.reshape(-1, *values.shape[-2:]).double().mean(0) + torch.eye(257)
        product = fused / fused.sum(-1, keepdim=True) @ product
    theirs = product[0, 1:]
    ours = torch.from_numpy(vp.rollout(anatomy, images).weight).double()[-256:]
    theirs, ours = theirs / theirs.max(), ours / ours.max()
    yield many("vit-explain", "rollout of 256 patches, largest 1", theirs, ours)


def robust_accuracy() -> Iterator[Row]:
    """AutoAttack's APGD as torchattacks has it, and FGSM, which has no randomness."""
    torchattacks = importlib.import_module("torchattacks")

    loaded = vp.load_model("resnet20.shapes")
    mean, std = (
        torch.tensor(values)[:, None, None]
        for values in (loaded.preprocessing.mean, loaded.preprocessing.std)
    )

    class WithNormalization(nn.Module):
        def forward(self, pixels: Tensor) -> Tensor:
            return loaded.model((pixels - mean) / std)

    pixels, targets = pixels_of_shapes(256)
    peer, epsilon = WithNormalization().eval(), 4 / 255
    with torch.no_grad():
        clean = (peer(pixels).argmax(1) == targets).double().mean().item()
    theirs = {
        "fgsm": torchattacks.FGSM(peer, eps=epsilon),
        "apgd": torchattacks.APGD(peer, eps=epsilon, steps=50, loss="ce"),
        "apgd-t": torchattacks.APGDT(peer, eps=epsilon, steps=50, n_classes=10),
    }
    attacks = [
        vp.Attack("fgsm", epsilon),
        vp.Attack("apgd", epsilon, steps=50),
        vp.Attack("apgd-t", epsilon, steps=50, loss="dlr"),
    ]
    result = vp.adversarial(
        loaded.model,
        [((pixels - mean) / std, targets)],
        attacks,
        mean=loaded.preprocessing.mean,
        std=loaded.preprocessing.std,
    )
    yield row("RobustBench", "accuracy", clean, result.clean_accuracy)
    for (name, attack), ours in zip(theirs.items(), result.accuracy.tolist(), strict=False):
        hit = peer(attack(pixels, targets)).argmax(1)
        quantity = f"accuracy under {name.upper()}, L∞ norm 4/255, 256 images"
        yield row("RobustBench", quantity, (hit == targets).double().mean().item(), ours)


def row(peer: str, quantity: str, theirs: float, ours: float) -> Row:
    values = {"theirs": theirs, "ours": ours, "difference": abs(theirs - ours)}
    return {"peer": peer, "quantity": quantity, **values}


def many(peer: str, quantity: str, theirs: Any, ours: Any) -> Row:
    a, b = np.asarray(theirs, dtype=float), np.asarray(ours, dtype=float)
    means = row(peer, quantity, float(a.mean()), float(b.mean()))
    return means | {"difference": float(np.abs(a - b).max())}


WAYS: dict[str, Callable[[], Iterator[Row]]] = {
    "checkpoints": checkpoints_of_the_authors,
    "metrics": metrics_of_the_authors,
    "pyhessian": curvature,
    "loss_landscapes": line_of_losses,
    "torch_cka": similarity,
    "imagecorruptions": corrupted_images,
    "torchattacks": robust_accuracy,
    "rollout": attention_rollout,
}


def main() -> None:
    parser = options(__doc__, RESULTS)
    parser.add_argument("--authors", metavar="DIR", help="clone of how-do-vits-work")
    parser.add_argument("--only", nargs="+", choices=WAYS, default=list(WAYS))
    arguments = parser.parse_args()
    if arguments.authors:
        sys.path.insert(0, arguments.authors)
        for name in (
            "requests",
            "tqdm",
            "seaborn",
        ):  # which its modules import, and we do not use
            if importlib.util.find_spec(name) is None:
                sys.modules[name] = types.ModuleType(name)
    stored = json.loads(RESULTS.read_text("utf-8")) if RESULTS.is_file() else {}
    ways = stored.get("ways", {})
    warnings.simplefilter("ignore")
    for name in arguments.only:
        try:
            ways[name] = list(WAYS[name]())
        except ModuleNotFoundError as error:
            print(f"{name} is left out: {error}")
            continue
        for line in ways[name]:
            print(
                f"{line['peer']:<18} {line['quantity']:<52} {line['theirs']:>12.6g} "
                f"{line['ours']:>12.6g} {line['difference']:>9.1e}",
                flush=True,
            )
    if arguments.write:
        versions = stored.get("setting", {}).get("versions", {})  # of ways that are not run now
        content = {"setting": setting(versions), "ways": ways}
        RESULTS.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        PAGE.write_text(with_tables(PAGE.read_text("utf-8"), ways), encoding="utf-8")


def with_tables(text: str, ways: dict[str, list[Row]]) -> str:
    """The page with the rows of each library under the table of its section."""
    sections = text.split("\n## ")
    for place, section in enumerate(sections):
        lines = [
            f"| {r['quantity']} | {r['theirs']:.6g} | {r['ours']:.6g} | {r['difference']:.1e} |"
            for rows in ways.values()
            for r in rows
            if section.startswith(r["peer"])
        ]
        before, table, after = section.partition(_TABLE)
        rest = after.lstrip("\n").splitlines(keepends=True)
        while rest and rest[0].startswith("|"):
            del rest[0]
        if table:
            text_after = "".join(rest).lstrip("\n")
            sections[place] = before + table + "\n".join(lines) + "\n\n" + text_after
    return "\n## ".join(sections)


def setting(versions: dict[str, str]) -> dict[str, Any]:
    """The versions, with those of earlier runs, and the date."""
    versions = dict(versions)
    for name in (
        "visprism",
        "torch",
        "pyhessian",
        "loss-landscapes",
        "torch-cka",
        "imagecorruptions",
        "torchattacks",
    ):
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    date = datetime.now(UTC).date().isoformat()
    return {"versions": versions, "commit": revision(), "date": date}


if __name__ == "__main__":
    main()
