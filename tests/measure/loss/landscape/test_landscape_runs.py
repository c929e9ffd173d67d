"""Interrupted landscapes, and their errors (src/visprism/measure/loss/landscape/grid.py)."""

import numpy as np
import pytest
import torch
from landscape_cases import lines, random_images, squares
from torch import nn
from torch.nn.functional import cross_entropy as mean_cross_entropy

from visprism import InputError, Run, TimeBudgetError, landscape, plane_along, random_planes
from visprism.measure.loss.landscape import discard_partial, seconds_per_point


class Drawing(nn.Module):
    """Dropout that is never off."""

    def forward(self, images):
        return nn.functional.dropout(images, training=True)


# Interrupted runs.


class StoppedError(Exception):
    pass


def interrupted_after(points):
    def progress(items, _):
        for done, item in enumerate(items):
            if done == points:
                raise StoppedError
            yield item

    return Run(progress=progress)


def test_an_interrupted_and_resumed_run_gives_the_same_bits(small, batches, tmp_path):
    planes = random_planes(small, points=3, pairs=2)
    path = tmp_path / "part"
    state = {n: t.clone() for n, t in small.state_dict().items()}
    with pytest.raises(StoppedError):
        landscape(small, batches, planes, resume=path, run=interrupted_after(12))
    assert all(torch.equal(t, state[n]) for n, t in small.state_dict().items())
    left = []
    surface = landscape(
        small,
        batches,
        planes,
        resume=path,
        run=Run(progress=lambda n, _: left.append(len(n)) or n),
    )
    assert left == [1 + 7]  # the weights themselves, and the points that were missing
    uninterrupted = landscape(small, batches, planes)
    for name, column in uninterrupted.columns().items():
        np.testing.assert_array_equal(column, surface.columns()[name])
    discard_partial(path)
    assert list(tmp_path.iterdir()) == []


def test_a_run_can_be_interrupted_again_and_by_other_processes(small, batches, tmp_path):
    planes = random_planes(small, points=3, pairs=2)
    path = tmp_path / "part"
    for points in (4, 5):
        with pytest.raises(StoppedError):
            landscape(small, batches, planes, resume=path, run=interrupted_after(1 + points))
    with np.load(tmp_path / "part.0") as stored:
        assert stored["number"].tolist() == list(range(9))
        halves = {rank: dict(stored) for rank in (0, 3)}
    for rank, half in halves.items():  # as two processes would have left them
        mine = half["number"] % 2 == (rank == 3)
        half |= {name: half[name][mine] for name in ("number", "row")}
        with (tmp_path / f"part.{rank}").open("wb") as file:
            np.savez(file, **half)
    left = []
    surface = landscape(
        small,
        batches,
        planes,
        resume=path,
        run=Run(progress=lambda n, _: left.append(len(n)) or n),
    )
    assert left == [1 + 9]
    np.testing.assert_array_equal(surface.nll, landscape(small, batches, planes).nll)


@pytest.mark.parametrize("what", ["model", "data", "settings"])
def test_a_part_of_another_landscape_is_refused(small, batches, tmp_path, what):
    path = tmp_path / "part"
    landscape(small, batches, lines(small), resume=path)
    planes = random_planes(small, points=5 if what == "settings" else 3, lines=True)
    if what == "model":
        with torch.no_grad():
            small[0].weight.mul_(1 + 1e-6)
        planes = lines(small) if what == "settings" else planes
    images = [(x + (what == "data"), y) for x, y in batches]
    with pytest.raises(InputError, match=rf"is of a landscape with other .*{what}"):
        landscape(small, images, planes, resume=path)


def test_a_damaged_part_is_refused(small, batches, tmp_path):
    (tmp_path / "part.0").write_bytes(b"no archive")
    with pytest.raises(InputError, match=r"part\.0 must be a partial landscape"):
        landscape(small, batches, lines(small), resume=tmp_path / "part")


# Contracts and errors.


def test_losses_that_are_not_finite_are_kept_and_told(batches):
    class Exploding(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(5, 3))

        def forward(self, x):
            big = torch.where(self.w.sum() > 15.0, float("inf"), 1.0)
            return (x.mean((2, 3)) @ self.w.T) * big

    model = Exploding().eval()
    plane = plane_along(model, {"w": torch.ones(5, 3)}, points=3)
    surface = landscape(model, batches, [plane])
    assert np.isfinite(surface.nll).tolist() == [True, True, False]
    assert "the NLL is not finite at 1 of 3 points" in map(str, surface.findings())


def test_a_loss_that_is_not_finite_at_the_weights_is_refused(small, batches):
    with torch.no_grad():
        small[8].bias[0] = float("nan")
    with pytest.raises(
        InputError, match="the loss of the model's weights must be finite, got nan"
    ):
        landscape(small, batches, lines(small))


def test_a_model_in_training_mode_is_refused(small, batches):
    with pytest.raises(
        InputError, match=r"must be in evaluation mode. Call model\.eval\(\) first"
    ):
        landscape(small.train(), batches)


def test_a_model_that_draws_random_numbers_is_refused(small, batches):
    noisy = nn.Sequential(Drawing(), small).eval()
    with pytest.raises(InputError, match=r"must be deterministic, and its logits differ"):
        landscape(noisy, batches, lines(noisy))


def test_data_without_labels_is_refused(small, batches):
    with pytest.raises(InputError, match="targets must be class indices from 0 on, got -1"):
        landscape(small, [(x, torch.full_like(y, -1)) for x, y in batches])
    with pytest.raises(InputError, match=r"a batch must be \(images, targets\), got Tensor"):
        landscape(small, [x for x, _ in batches])
    with pytest.raises(InputError, match="batches must hold at least one image, got none"):
        landscape(small, [])


def test_a_loss_of_one_number_for_the_batch_is_refused(small, batches):
    with pytest.raises(
        InputError, match=r"loss must return one number per example, got shape \(\) for 12"
    ):
        landscape(small, batches, lines(small), loss=mean_cross_entropy)


def test_images_of_several_shapes_are_refused(small):
    odd = [(random_images(2, side)[0], torch.zeros(2, dtype=torch.long)) for side in (8, 9)]
    with pytest.raises(InputError, match=r"images must have one shape, got 3x8x8, 3x9x9"):
        landscape(small, odd)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"batch_norm": "batch"},
            "batch_norm must be 'frozen' or 'reestimated' for landscapes, got 'batch'",
        ),
        ({"weight_decay": -1.0}, "weight_decay must be at least 0, got -1.0"),
        ({"batch_size": -2}, "batch_size must be at least 1, got -2"),
        ({"decayed": "nothing*"}, "no parameter matches nothing"),
    ],
)
def test_settings_that_cannot_be_are_refused(small, batches, options, said):
    with pytest.raises(InputError, match=said):
        landscape(small, batches, lines(small), **options)


def test_everything_is_as_it_was_after_a_failure_too(small, batches):
    seen = []

    def failing(logits, targets):
        seen.append(1)
        if len(seen) == 3:
            raise StoppedError
        return squares(logits, nn.functional.one_hot(targets, 5))

    before = {n: (t.data_ptr(), t.clone()) for n, t in small.state_dict().items()}
    with pytest.raises(StoppedError):
        landscape(small, batches, batch_norm="reestimated", loss=failing)
    for n, t in small.state_dict().items():
        assert (t.data_ptr(), True) == (before[n][0], torch.equal(t, before[n][1]))
    assert "forward" not in vars(small[1])
    assert not any(m.training for m in small.modules())


def test_it_is_written_and_read(small, batches, tmp_path):
    surface = landscape(small, batches, random_planes(small, points=3, pairs=2))
    surface.save(tmp_path / "x.npz")
    assert type(surface).load(tmp_path / "x.npz") == surface
    assert surface.classes == 5
    assert surface.provenance.images == 12


def test_nll_and_l2_add_up_to_the_objective(small, batches):
    surface = landscape(small, batches, lines(small), weight_decay=0.1)
    np.testing.assert_array_equal(surface.objective, surface.nll + surface.l2)


def test_a_deadline_ends_it_between_two_batches(small, batches):
    state = {n: t.clone() for n, t in small.state_dict().items()}
    with pytest.raises(TimeBudgetError, match="time budget"):
        landscape(small, batches, run=Run(deadline=0.0))
    assert all(torch.equal(t, state[n]) for n, t in small.state_dict().items())


def test_progress_counts_the_batches_of_all_points(small, batches):
    steps = []

    def progress(items, label):
        for item in items:
            steps.append(label)
            yield item

    for treatment, passes in (("frozen", 1), ("reestimated", 2)):
        steps.clear()
        run = Run(progress=progress)
        landscape(small, batches, lines(small), batch_norm=treatment, batch_size=5, run=run)
        assert steps == ["landscape"] * (1 + 3) * 3 * passes  # points, batches


def test_the_seconds_of_a_point_are_estimated(small, batches):
    assert 0 < seconds_per_point(small, batches) < 1
