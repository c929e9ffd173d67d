"""Whether memory grows with the number of models and of images.

Each case runs in a process of its own, of which the peak of resident memory is read. A study
of 2, 6 and 12 models measures copies of one network, so that its size does not differ, and each
of the analyses must have measured each model. Passes over 500 to 50,000 images read the
procedural shapes, and keep only what a result needs.

    python benchmarks/memory.py            # prints the table
    python benchmarks/memory.py --write    # and writes benchmarks/results/memory.json

Claim: a further model adds at most a quarter of its weights, for its results, modules and
anatomy, since the weights of models that wait leave memory; 50,000 images take at most 1.25
times the memory of 5,000.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import made_with, options

RESULTS = Path(__file__).parent / "results" / "memory.json"
MODEL = "timm:resnet50"  # 90 MiB of weights with the 10 classes of the images
ANALYSES = "fourier,variance,cka,ablation,frequency-noise,singular-values"
STUDIES, PASSES = (2, 6, 12), (500, 5_000, 50_000)


def main() -> None:
    parser = options(__doc__, RESULTS)
    parser.add_argument("--case", nargs=2, metavar=("KIND", "NUMBER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        kind, number = arguments.case
        start = time.perf_counter()
        {"models": study_of, "images": pass_over}[kind](int(number))
        print(json.dumps({"seconds": time.perf_counter() - start, "mebibytes": peak()}))
        return
    cases = [("models", n) for n in STUDIES] + [("images", n) for n in PASSES]
    rows, of = [], {}
    for kind, number in cases:
        measured = fresh(kind, number)
        of[kind, number] = measured["mebibytes"]
        rows.append({"kind": kind, "number": number} | measured)
        print(f"{number:6} {kind}: {of[kind, number]:7.0f} MiB", flush=True)
    ratios = {
        "12 models over 2": of["models", 12] / of["models", 2],
        "50,000 images over 5,000": of["images", 50_000] / of["images", 5_000],
    }
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.2f}")
    if arguments.write:
        content = {"setting": setting(), "rows": rows, "ratios": ratios}
        RESULTS.write_text(json.dumps(content, indent=1) + "\n")


def study_of(models: int) -> None:
    """A study, with its page, of copies of one network on 32 images of 64 pixels a side."""
    from visprism.cli import main as command

    # Dropout in the classifier has no effect in evaluation mode; the names differ.
    names = [f"{MODEL}?num_classes=10&drop_rate=0.{i + 1}" for i in range(models)]
    with tempfile.TemporaryDirectory() as folder:
        words = ["--data", "shapes?size=64", "--size", "64", "--limit", "32"]
        words += ["--analyses", ANALYSES, "--minutes", "none", "--out", folder]
        if code := command(["examine", *names, *words]):
            raise SystemExit(code)
        check_measured(Path(folder), models)


def check_measured(folder: Path, models: int) -> None:
    """Require results of each analysis of each model."""
    import visprism as vp

    entries = vp.Study.load(folder).entries
    number = sum(len(entry.models) == 1 for entry in entries)
    if number != models * len(ANALYSES.split(",")):
        raise SystemExit(f"{number} results of {models} models; some analyses did not apply")


def pass_over(images: int) -> None:
    """Fourier spectra, variances and predictions of the shipped ResNet-20."""
    import visprism as vp

    loaded = vp.load_model("resnet20.shapes")
    data = vp.load_data("shapes?size=32", limit=images)
    feed = vp.batches(data, loaded.preprocessing, 64)
    first = next(iter(feed))[0]
    anatomy = vp.dissect(loaded.model, first[:2])
    vp.observe(anatomy, feed, [vp.Fourier(), vp.Variance()])
    vp.predict(loaded.model, feed)


def peak() -> float:
    """Peak of resident memory of this process in MiB, without what its parent held."""
    status = Path("/proc/self/status").read_text().splitlines()
    line = next(x for x in status if x.startswith("VmHWM"))
    return int(line.split()[1]) / 2**10


def fresh(kind: str, number: int) -> dict[str, float]:
    """Peak memory and seconds of one case in a process of its own."""
    command = [sys.executable, __file__, "--case", kind, str(number)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(output.splitlines()[-1])


def setting() -> dict:
    """Where the numbers are from."""
    return made_with("timm", model=MODEL, analyses=ANALYSES)


if __name__ == "__main__":
    main()
