"""The wheel in empty environments: each promised Python with the lowest and newest packages.

    python benchmarks/installations.py [--python 3.11 ...] [--resolution lowest-direct ...]

For each pair it makes an environment with uv, installs what the wheel requires and the wheel
that it has built, and runs a study of two shipped networks outside of the repository. "lowest"
is the lowest version of each required package that has a wheel for the Python and that the
others admit. A Python is a version or the path of an interpreter. The results are merged into
benchmarks/results/installations.json. The first run downloads several GB of torch.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import tempfile
import time
import zipfile
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "installations.json"
PYTHONS = ("3.11", "3.12", "3.13")
RESOLUTIONS = ("lowest-direct", "highest")
EXTRAS = ("pandas", "parquet", "tensorboard", "hf")
JOB = (
    "visprism examine resnet20.shapes vit_pico_patch4_32.shapes --data shapes --limit 32 "
    "--out study --minutes none --analyses fourier,variance,cka,calibration,hessian,ablation"
)
# Writes a small classifier with random weights in the format of Hugging Face.
HUGGING_FACE = (
    "from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor;"
    "size = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2);"
    "config = ViTConfig(image_size=32, patch_size=8, intermediate_size=64, **size);"
    "ViTForImageClassification(config).save_pretrained('tiny');"
    "ViTImageProcessor(size=dict(height=32, width=32)).save_pretrained('tiny')"
)
_REPOSITORY = ("PYTHONPATH", "VIRTUAL_ENV")  # variables that lead to the repository's packages


def environment() -> dict[str, str]:
    """The environment without the repository's packages, and with two threads."""
    inherited = {k: v for k, v in os.environ.items() if k not in _REPOSITORY}
    return inherited | {"OMP_NUM_THREADS": "2", "MPLBACKEND": "Agg"}


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, cwd=folder, env=environment(), capture_output=True, text=True, check=False
    )


def requirements(wheel: Path) -> list[str]:
    """What the wheel and its extras require, each as a requirement of its own."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith("METADATA"))
        text = archive.read(name).decode()
    stated = re.findall(
        r"^Requires-Dist: ([^;\n]+)(?:; extra == '(\w+)')?$", text, re.MULTILINE
    )
    return [required.strip() for required, extra in stated if not extra or extra in EXTRAS]


def build_wheel(folder: Path) -> Path:
    done = run(folder, "uv", "build", "--wheel", "--out-dir", str(folder), str(ROOT))
    if done.returncode:
        raise SystemExit(done.stderr)
    return next(folder.glob("*.whl"))


def installed(program: Path, folder: Path) -> tuple[dict[str, str], str]:
    """Versions of the packages that visprism and its extras require, and of Python."""
    done = run(folder, str(program), "doctor", "--json")
    content = json.loads(done.stdout or "null") or {}
    packages = content.get("packages", {}) | content.get("optional packages", {})
    return packages, content.get("system", {}).get("Python", "unknown")


def outcome(wheel: Path, python: str, resolution: str) -> dict[str, object]:
    """What one pair of Python and resolution gives."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        steps = [
            ("uv", "venv", "--python", python, str(folder / "venv")),
            (
                *("uv", "pip", "install", "--python", str(folder / "venv"), "--no-config"),
                *("--resolution", resolution, "--only-binary", ":all:"),
                *requirements(wheel),
            ),
            (
                *("uv", "pip", "install", "--python", str(folder / "venv"), "--no-config"),
                *("--no-deps", str(wheel)),
            ),
        ]
        for words in steps:
            done = run(folder, *words)
            if done.returncode:
                return {"ok": False, "step": " ".join(words[:3]), "error": last(done.stderr)}
        install_seconds = time.monotonic() - begin
        scripts = folder / "venv" / "bin"
        packages, number = installed(scripts / "visprism", folder)
        checks = {}
        for words in (JOB, f"python -c {HUGGING_FACE}", "visprism anatomy hf:tiny"):
            program, *arguments = words.split(maxsplit=2 if "python" in words else -1)
            begin = time.monotonic()
            done = run(folder, str(scripts / program), *arguments)
            checks[name_of(words)] = {
                "exit_code": done.returncode,
                "seconds": round(time.monotonic() - begin, 1),
                **({"error": last(done.stderr)} if done.returncode else {}),
            }
        report = folder / "study" / "report.html"
        return {
            "ok": report.is_file() and not any(c["exit_code"] for c in checks.values()),
            "install_seconds": round(install_seconds, 1),
            "python": number,
            "versions": packages,
            "commands": checks,
        }


def name_of(words: str) -> str:
    """A command in the results; the program that writes a model by what it does."""
    return "write a model with transformers" if words.startswith("python") else words


def last(text: str) -> str:
    """The end of an error message."""
    return "\n".join(text.strip().splitlines()[-12:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", nargs="+", default=PYTHONS)
    parser.add_argument("--resolution", nargs="+", default=RESOLUTIONS)
    arguments = parser.parse_args()
    stored = json.loads(RESULTS.read_text("utf-8")) if RESULTS.is_file() else {}
    runs = stored.get("runs", {})
    with tempfile.TemporaryDirectory() as name:
        wheel = build_wheel(Path(name))
        for python in arguments.python:
            for resolution in arguments.resolution:
                result = outcome(wheel, python, resolution)
                number = result.get("python", python)
                runs[f"{number} {resolution}"] = result
                state = "passed" if result["ok"] else "failed"
                print(f"Python {number}, {resolution}: {state}", flush=True)
                content = {
                    "date": datetime.now(UTC).date().isoformat(),
                    "machine": f"{platform.system()} {platform.machine()}",
                    "job": JOB,
                    "runs": dict(sorted(runs.items())),
                }
                RESULTS.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
