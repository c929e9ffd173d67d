"""``visprism landscape`` and ``trajectory``, and landscapes within a time."""

import numpy as np
import pytest
import torch

from visprism.cli import main
from visprism.data import batches, load_data
from visprism.examine import Inquiry, landscape_within, load_models, prepare
from visprism.examine.grids import GRIDS, grid_within
from visprism.measure.loss import Objective
from visprism.measure.loss.curvature import top_eigenvalues
from visprism.measure.loss.landscape import landscape
from visprism.models import load_model, save_checkpoint
from visprism.results.base import Result
from visprism.results.landscape import Landscape

TINY = ["--data", "shapes", "--limit", "6", "--points", "3", "--reach", "0.1"]
NAME = "results/resnet20-random-weights-landscape.npz"


@pytest.fixture(scope="module")
def surveyed(tmp_path_factory):
    """What ``visprism landscape`` writes about a model."""
    out = tmp_path_factory.mktemp("surveyed")
    assert main(["landscape", "resnet20", *TINY, "--pairs", "2", "--out", str(out)]) == 0
    return out


def checkpoint(path, seed):
    save_checkpoint(load_model("resnet20", seed=seed).model, path)
    return str(path)


def quiet(items, label):  # noqa: ARG001
    return items


# What it writes.


def test_it_writes_the_surfaces_a_page_and_no_part_of_a_run(surveyed):
    assert {p.name for p in surveyed.iterdir()} == {"report.html", "results", "figures"}
    for ending in ("", "-surface", "-slices", "-accuracy", "-l2"):
        assert (surveyed / "figures" / f"landscape{ending}.png").stat().st_size > 1000
    result = Result.load(surveyed / NAME)
    assert isinstance(result, Landscape)
    assert (len(result), result.classes, result.provenance.images) == (18, 10, 6)
    assert result.a.max() == 0.1
    assert "data-surface" in (surveyed / "report.html").read_text("utf-8")


@pytest.mark.usefixtures("without_figures")
def test_along_the_sharpest_directions_the_loss_bends_as_the_hessian_says(tmp_path):
    options = ["--data", "shapes", "--limit", "6", "--points", "3", "--reach", "0.001"]
    plane = ["--plane", "hessian", "--weight-decay", "0", "--out", str(tmp_path)]
    assert main(["landscape", "resnet20", *options, *plane]) == 0
    surface = Result.load(tmp_path / NAME)
    loaded = load_model("resnet20")
    batch = next(
        iter(batches(load_data("shapes", limit=6), loaded.preprocessing, batch_size=6))
    )
    sharpest = top_eigenvalues(Objective(loaded.model, [batch]), k=2, which="LA")

    def bend(a, b):
        one, other = (surface.nll[(surface.a == s * a) & (surface.b == s * b)] for s in (1, -1))
        middle = surface.nll[(surface.a == 0) & (surface.b == 0)]
        return float((one + other - 2 * middle)[0]) / 0.001**2

    assert bend(0.001, 0) == pytest.approx(sharpest.value[0], rel=0.1)
    assert bend(0, 0.001) == pytest.approx(sharpest.value[1], rel=0.1)


@pytest.mark.usefixtures("without_figures")
def test_an_interrupted_command_goes_on_where_it_was(surveyed, tmp_path, capsys, monkeypatch):
    measured = []

    def interrupted(*args, **kwargs):
        def some(numbers):
            for number in numbers:
                measured.append(number)
                yield number
                if len(measured) == 7:
                    raise KeyboardInterrupt

        return landscape(*args, **kwargs | {"progress": some})

    command = ["landscape", "resnet20", *TINY, "--pairs", "2", "--out", str(tmp_path)]
    monkeypatch.setattr("visprism.examine.landscapes.landscape", interrupted)
    assert main(command) == 130
    said = capsys.readouterr().err
    assert said.endswith("visprism: interrupted; the same command will go on where it was\n")
    assert main(command) == 0
    assert measured == list(range(18))
    again, first = Result.load(tmp_path / NAME), Result.load(surveyed / NAME)
    np.testing.assert_array_equal(again.nll, first.nll)
    assert {p.name for p in tmp_path.iterdir()} == {"report.html", "results"}


def test_the_plane_through_checkpoints_shows_where_they_are(tmp_path):
    files = [checkpoint(tmp_path / f"{seed}.safetensors", seed) for seed in (1, 2)]
    out = tmp_path / "out"
    options = ["--plane", *files, "--batch-norm", "reestimated", "--augment"]
    assert main(["landscape", "resnet20", *TINY, *options, "--out", str(out)]) == 0
    result = Result.load(out / NAME)
    assert (result.plane, result.batch_norm) == ("checkpoints", "reestimated")
    path = Result.load(out / "results" / "resnet20-random-weights-checkpoints.npz")
    np.testing.assert_allclose((path.a[:2], path.b[:2]), [[1, 0], [0, 0]], atol=1e-6)
    assert (out / "figures" / "resnet20-random-weights-checkpoints.png").exists()


def test_a_path_of_checkpoints_is_drawn_on_the_plane_of_its_main_directions(tmp_path):
    files = [checkpoint(tmp_path / f"{seed}.safetensors", seed) for seed in (1, 2, 3)]
    out = tmp_path / "out"
    assert main(["landscape", "resnet20", *TINY, "--plane", *files, "--out", str(out)]) == 0
    assert Result.load(out / NAME).plane == "given"
    path = Result.load(out / "results" / "resnet20-random-weights-checkpoints.npz")
    assert len(path) == 4
    np.testing.assert_allclose((path.a[3], path.b[3]), 0, atol=1e-6)  # the model, its end
    # Four draws of random weights are the corners of a body with equal edges, of whose three
    # dimensions, seen from one corner, the plane holds those with the most variance.
    assert path.share[:3].sum() == pytest.approx(2.5, abs=0.1)
    assert "main ones of the path of 3 checkpoints" in (out / "report.html").read_text("utf-8")


def test_a_trajectory_is_drawn_from_snapshots(tmp_path, capsys):
    files = [checkpoint(tmp_path / f"{seed}.safetensors", seed) for seed in (1, 2, 3)]
    out = tmp_path / "out"
    assert main(["trajectory", "resnet20", "--snapshots", *files, "--out", str(out)]) == 0
    assert (out / "figures" / "trajectory-polar.png").exists()
    result = Result.load(out / "results" / "resnet20-random-weights-trajectory.npz")
    # Three draws of random weights form a triangle with equal sides.
    np.testing.assert_allclose(result.radius, [1, 1, 0], atol=0.05)
    assert result.angle[1] == pytest.approx(np.pi / 3, abs=0.05)
    assert "two components hold 100% of the variance of 3 snapshots" in capsys.readouterr().out


# What it refuses.


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--points", "4"], "points is 4; wants an odd number from 3 on"),
        (["--plane", "nowhere.pt"], "the checkpoint nowhere.pt does not exist"),
        (["--weight-decay", "-1"], "weight_decay is -1.0; wants a number from 0 on"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, capsys, options, said):
    command = ["landscape", "resnet20", *TINY, *options, "--out", str(tmp_path / "out")]
    assert main(command) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_other_settings_do_not_go_on_with_what_another_run_has_left(tmp_path, capsys):
    part = tmp_path / ".landscape-resnet20-random-weights.0"
    np.savez(tmp_path / "x.npz", number=[0], row=[[0.0] * 6], model="", data="", settings="")
    (tmp_path / "x.npz").rename(part)
    assert main(["landscape", "resnet20", *TINY, "--out", str(tmp_path)]) == 2
    assert "part of another landscape (another model and data" in capsys.readouterr().err


# Within a time.


def test_the_grid_is_as_fine_as_the_time_allows():
    assert grid_within(1e9, images=10_000) == (21, 1000)
    assert grid_within(1e9, images=50) == (21, 50)
    assert grid_within(1.0, images=10_000) == (9, 16)
    for passes in np.geomspace(2e3, 1e6, 40):
        points, images = grid_within(passes, images=5000)
        assert points in GRIDS
        assert points**2 * images <= passes or images == 16


def test_a_landscape_within_seconds_says_what_it_is():
    with torch.random.fork_rng():
        models = load_models(["resnet20"])
    inquiry = Inquiry(data="shapes", limit=40)
    (materials,) = prepare(models, inquiry, progress=quiet)
    found = landscape_within(materials, inquiry, seconds=2.0)
    assert len(found) in {points**2 for points in GRIDS}
    assert 16 <= found.provenance.images <= 40
    assert found.provenance.model.startswith("resnet20")
