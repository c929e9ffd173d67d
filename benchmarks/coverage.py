"""How many of the field's architectures are dissected and observed, and why the others are not.

    python benchmarks/coverage.py              one architecture of each timm family, all of
                                               torchvision's classifiers, all classifiers and
                                               backbones of transformers, small
    python benchmarks/coverage.py --all        every architecture name that timm lists, each on
                                               the smallest image that it takes
    python benchmarks/coverage.py --names vit  those whose name holds "vit"
    python benchmarks/coverage.py --analyses   more analyses than Fourier and variance

Networks have random weights; nothing is downloaded. An architecture counts if `dissect` and
`observe` (Fourier and variance) raise nothing and each block has a kind. It counts as clean if
moreover every block between stem and head lies on a grid and `Anatomy.notes` has nothing to
say. Each runs in a process of its own, under a limit of time and memory. `--resume FILE` keeps
one line of JSON for each architecture and goes on where an earlier run ended.

With `--analyses`, a study of six images measures feature maps, attention, weights, predictions,
sharpness and ablation. An error counts as a failure, a refusal in a sentence as a note. The
images are as small as with `--all`.

With `--all`, the first size from 64 pixels on that the architecture runs at is measured, and
where that fails or has a note, the size that it states. Networks of over 1.5 billion parameters
are built with four of their blocks, where they have that option.
"""

import argparse
import json
import multiprocessing as mp
import random
import re
import resource
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

from harness import made_with

RESULTS = Path(__file__).parent / "results" / "coverage.json"
# Of transformers: they take colors as words, text or patches; have no grid; need a library of
# another site; are networks of timm; or are listed twice.
LEFT_OUT = {
    *("imagegpt", "shieldgemma2", "siglip2", "perceiver", "dinat", "timm_wrapper"),
    *("timm_backbone", "tipsv2_vision_model"),
}
# What the small members of a family are called, the smallest first.
SMALLER = (
    "atto",
    "femto",
    "pico",
    "nano",
    "xxt",
    "xxs",
    "tiny",
    "_ti",
    "small",
    "_t",
    "_s",
    "18",
)
SIDES = (64, 96, 128, 160, 192, 224, 256)  # tried in turn with --all
LARGE = 1.5e9  # parameters that a machine of 16 GB does not hold
# What `--analyses` measures: these groups, and one of each other kind of pass.
GROUPS = ("model", "feature maps", "attention", "weights")
OTHERS = ("calibration", "ablation", "sharpness")
SMALL = {"hidden_size": 96, "num_attention_heads": 3, "intermediate_size": 192}


def timm_names(*, everything: bool) -> Iterator[tuple[str, str]]:
    """(family, architecture); without `everything` one small member of each family."""
    import timm
    from timm.models import list_modules

    def size(name: str) -> tuple[int, int, str]:
        marks = (i for i, mark in enumerate(SMALLER) if mark in name)
        return next(marks, len(SMALLER)), len(name), name

    for family in list_modules():
        names = timm.list_models(module=family, include_tags=False)
        for name in names if everything else sorted(names, key=size)[:1]:
            yield family, f"timm:{name}"


def torchvision_names() -> Iterator[tuple[str, str]]:
    """Every classifier of torchvision."""
    import torchvision

    for name in torchvision.models.list_models(module=torchvision.models):
        yield (
            f"torchvision {name.rstrip('0123456789').partition('_')[0]}",
            f"torchvision:{name}",
        )


def hugging_face_names() -> Iterator[tuple[str, str]]:
    """Image classifiers and backbones of transformers, built from their configuration."""
    from transformers.models.auto import modeling_auto as auto

    classifiers = auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES
    for listed in (classifiers, auto.MODEL_FOR_BACKBONE_MAPPING_NAMES):
        for kind, classes in listed.items():
            for name in (classes,) if isinstance(classes, str) else classes:
                if kind not in LEFT_OUT:
                    yield f"transformers {kind}", f"transformers:{name}"


def hugging_face(name: str) -> tuple:
    """A network of transformers with four layers or two blocks a stage, as small as it runs."""
    import torch
    import transformers

    cls = getattr(transformers, name)
    known = cls.config_class().to_dict()
    lists = {k: list(v) for k in ("hidden_sizes", "embed_dims") if (v := known.get(k))}
    if known.get("depths"):
        few = {"depths": [min(2, n) for n in known["depths"]], **lists}
    else:
        few = {k: 4 for k in ("num_hidden_layers",) if k in known}
    small = few | {k: v for k, v in SMALL.items() if isinstance(known.get(k), int)}
    if "vision_config" in known:  # CLIP, SigLIP
        small = {"vision_config": SMALL | {"num_hidden_layers": 4}}
    for options in (small | {"image_size": 96}, small | {"image_size": 128}, small, few, {}):
        try:
            config = cls.config_class(**options)
            model = cls(config).eval()
            vision = getattr(config, "vision_config", config)
            side, channels = (
                getattr(vision, "image_size", 128),
                getattr(vision, "num_channels", 3),
            )
            height, width = (side, side) if isinstance(side, int) else side
            with torch.no_grad():
                model(torch.zeros(2, channels, height, width))
        except Exception as error:  # an option that it has not, or sizes that do not fit
            reason = error
        else:
            return model, height, channels
    raise reason


def build(name: str) -> tuple:
    """The model in evaluation mode and the side and channels of its input."""
    source, _, arch = name.partition(":")
    if source == "timm":
        import timm

        model = timm.create_model(arch)
        channels, side, _ = vars(model)["default_cfg"].get("input_size", (3, 224, 224))
        return model.eval(), side, channels
    if source == "torchvision":
        import torchvision

        options = {"init_weights": True} if arch in {"googlenet", "inception_v3"} else {}
        model = torchvision.models.get_model(arch, weights=None, **options)
        return model.eval(), 299 if arch == "inception_v3" else 224, 3
    return hugging_face(arch)


def options_of(arch: str) -> dict[str, Any]:
    """`depth=4` for networks of timm that are too large for a common machine."""
    import timm
    import torch

    with torch.device("meta"):
        try:
            model = timm.create_model(arch)
            if sum(p.numel() for p in model.parameters()) < LARGE:
                return {}
            timm.create_model(arch, depth=4)
        except Exception:  # no such option, or a constructor that reads its tensors
            return {}
    return {"depth": 4}


def smallest(name: str) -> Iterator[tuple]:
    """A model of timm as `build` gives it, at the smallest size that runs, then at its own."""
    import timm
    import torch

    arch = name.partition(":")[2]
    options: dict[str, Any] = options_of(arch)
    channels, stated, _ = vars(timm.get_pretrained_cfg(arch))["input_size"]
    model = None
    for side in [s for s in SIDES if s < stated]:
        # A network of one image size takes another one as an option, others at run time.
        sizes: tuple[dict[str, Any], ...] = ({"img_size": side}, {})
        for sized in sizes:
            try:
                if sized or model is None:
                    model = timm.create_model(arch, **sized, **options).eval()
                with torch.no_grad():
                    model(torch.zeros(2, channels, side, side))
            except Exception:
                continue
            yield model, side, channels
            break
        else:
            continue
        break
    yield timm.create_model(arch, **options).eval(), stated, channels


def examine(name: str) -> dict:
    """What came of one architecture; an empty `failure` is a success, a `note` qualifies it."""
    return dissected(name, *build(name))


def examine_smallest(name: str) -> dict:
    """`examine` at the smallest size, and at the stated one after a failure or a note."""
    if not name.startswith("timm:"):
        return examine(name)
    warnings.simplefilter("ignore")
    row = failed(name, "not built")
    for model, side, channels in smallest(name):
        try:
            row = dissected(name, model, side, channels)
        except Exception as error:
            row = failed(name, one_line(error))
        row["side"] = side
        if not row["failure"] and not row["note"]:
            break
    return row


def analyzed(name: str) -> dict:
    """What came of a study with most analyses."""
    warnings.simplefilter("ignore")
    import torch

    import visprism as vp

    torch.set_num_threads(1)
    model, side, channels = next(smallest(name)) if name.startswith("timm:") else build(name)
    start = time.perf_counter()
    images = torch.rand(6, channels, side, side, generator=torch.Generator().manual_seed(0))
    names = [n for n in vp.ANALYSES if vp.ANALYSES[n].group in GROUPS or n in OTHERS]
    few = {"feature-similarity": {"neighbors": 2}}  # of six images
    batches = [(images, torch.arange(6) % 2)]
    study = vp.examine({name: model}, batches, analyses=names, options=few)
    said = [f"{f.analysis}: {f.reason}" for f in study.failures if f.kind == "failed"]
    errors = [text for text in said if re.match(r"[\w-]+: \w+(Error|Exception): ", text)]
    return {
        "name": name,
        "failure": " ".join(errors),
        "note": " ".join(text for text in said if text not in errors),
        "kinds": {},
        "seconds": round(time.perf_counter() - start, 1),
        "side": side,
    }


def dissected(name: str, model, side: int, channels: int) -> dict:  # noqa: ANN001
    """Dissect and observe one model on two images."""
    warnings.simplefilter("ignore")
    import torch

    import visprism as vp

    torch.set_num_threads(1)
    start = time.perf_counter()
    images = torch.randn(2, channels, side, side, generator=torch.Generator().manual_seed(0))
    anatomy = vp.dissect(model, images)
    middle = anatomy[1:-1]
    vp.observe(anatomy, [images], [vp.Fourier(), vp.Variance()])
    kinds = defaultdict(int)
    for block in middle:
        kinds[block.kind] += 1
    seconds = round(time.perf_counter() - start, 1)
    return {
        "name": name,
        "failure": "" if middle else "no block between stem and head",
        "note": " ".join(anatomy.notes),
        "kinds": dict(kinds),
        "seconds": seconds,
    }


def one_line(error: BaseException) -> str:
    """Class and text of an error, at most 300 characters."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def failed(name: str, failure: str) -> dict:
    """A row for an architecture that gave no answer."""
    return {"name": name, "failure": failure, "note": "", "kinds": {}, "seconds": 0}


def _child(work: Callable[[str], dict], name: str, gib: float, answer) -> None:  # noqa: ANN001
    resource.setrlimit(resource.RLIMIT_AS, (int(gib * 2**30), resource.RLIM_INFINITY))
    try:
        answer.put(work(name))
    except BaseException as error:
        answer.put(failed(name, one_line(error)))


def isolated(work: Callable[[str], dict], name: str, *, seconds: float, gib: float) -> dict:
    """`work` on one architecture in a process of its own."""
    answer = mp.Queue()
    process = mp.Process(target=_child, args=(work, name, gib, answer))
    process.start()
    try:
        return answer.get(timeout=seconds)
    except Exception:
        process.kill()
        return failed(name, f"out of time ({seconds:.0f} s)")
    finally:
        process.join()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--all", action="store_true", help="every name that timm lists")
    parser.add_argument(
        "--analyses", action="store_true", help="a study with most analyses, in place of two"
    )
    parser.add_argument("--names", default="", help="only names that hold this")
    parser.add_argument("--seconds", type=float, default=240, help="limit for one architecture")
    parser.add_argument(
        "--gib", type=float, default=16, help="memory limit for one architecture"
    )
    parser.add_argument("--processes", type=int, default=1, help="architectures at a time")
    parser.add_argument(
        "--resume", type=Path, help="file of rows, read first and continued row by row"
    )
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    args = parser.parse_args()

    listed = [*timm_names(everything=args.all), *torchvision_names(), *hugging_face_names()]
    listed = [(family, name) for family, name in listed if args.names in name]
    # Loading the libraries once in the parent saves seconds in each forked child.
    import timm  # noqa: F401
    import torchvision  # noqa: F401

    import visprism as vp

    vp.dissect, vp.observe, vp.Fourier  # noqa: B018 (names are imported when they are read)
    work = analyzed if args.analyses else examine_smallest if args.all else examine
    earlier = {}
    if args.resume and args.resume.exists():
        lines = args.resume.read_text().splitlines()
        earlier = {row["name"]: row for row in map(json.loads, lines)}
    # In random order, so that the rows of a run that has not ended are a fair sample.
    order = random.Random(0).sample(listed, len(listed)) if args.all else listed

    def row_of(family_and_name: tuple[str, str]) -> dict:
        family, name = family_and_name
        row = earlier.get(name)
        if row is None:
            row = {"family": family} | isolated(work, name, seconds=args.seconds, gib=args.gib)
            if args.resume:
                with args.resume.open("a") as file:
                    file.write(json.dumps(row) + "\n")
        mark = "FAIL" if row["failure"] else "note" if row["note"] else "ok"
        said = row["failure"] or row["note"] or row["kinds"]
        print(f"{mark:4} {name:55s} {row['seconds']:6.1f} s {said}", flush=True)
        return row

    with ThreadPool(args.processes) as pool:
        rows = pool.map(row_of, order, chunksize=1)
    good = sum(not row["failure"] for row in rows)
    clean = sum(not (row["failure"] or row["note"]) for row in rows)
    print(
        f"{good} of {len(rows)} architectures measured ({good / len(rows):.1%}), "
        f"{clean} of them clean ({clean / len(rows):.1%})"
    )
    if args.write:
        content = {"setting": setting(), "all": args.all, "rows": rows}
        RESULTS.parent.mkdir(exist_ok=True)
        results = RESULTS.with_name("coverage_of_analyses.json") if args.analyses else RESULTS
        results.write_text(json.dumps(content, indent=1))


def setting() -> dict:
    """Where the numbers are from."""
    return made_with("torchvision", "timm", "transformers")


if __name__ == "__main__":
    main()
