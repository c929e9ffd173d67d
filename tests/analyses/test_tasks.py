"""Tasks: what outputs mean, and every analysis of an outcome and a loss for each of them."""

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from torch import nn
from torch.nn import functional

import visprism as vp
from visprism.core.statistics import mean_interval
from visprism.core.tasks import TASKS, Multilabel, Regression, Segmentation, Task, task
from visprism.estimates.estimated import mean, paired_proportion, proportion

PIXELS = vp.Preprocessing((16, 16), (0.0,) * 3, (1.0,) * 3)
EVERY = ["performance", "ablation", "corruptions", "frequency-noise", "quantization", "hessian"]


def network(outputs, *last, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, 1, 1),
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, outputs), *last,
    ).eval()  # fmt: skip


def dense(classes, seed=0):
    torch.manual_seed(seed)
    layers = [nn.Conv2d(3, 8, 3, 1, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 1, 1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(8, classes, 1)).eval()


def in_batches(images, targets, size=10):
    return [(images[i : i + size], targets[i : i + size]) for i in range(0, len(images), size)]


@pytest.fixture(scope="module")
def images():
    return torch.rand(40, 3, 16, 16, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def cases(images):
    draw = torch.Generator().manual_seed(2)
    labels = torch.randint(0, 2, (40, 5), generator=draw).float()
    labels[3, 2] = torch.nan
    masks = torch.randint(0, 4, (40, 16, 16), generator=draw)
    masks[:, :2] = 255
    return {
        "multilabel": (network(5), labels),
        "regression": (network(2), 10 * torch.randn(40, 2, generator=draw)),
        "segmentation": (dense(4), masks),
    }


@pytest.fixture(scope="module")
def studies(cases, images):
    return {
        name: vp.examine(
            {"m": model}, in_batches(images, targets), analyses=EVERY, preprocessing=PIXELS
        )
        for name, (model, targets) in cases.items()
    }


@pytest.mark.parametrize("name", ["multilabel", "regression", "segmentation"])
def test_every_analysis_of_an_outcome_and_a_loss_runs(studies, name):
    study = studies[name]
    assert not study.failures
    assert set(study.analyses) == set(EVERY)
    assert study["m"]["ablation"].provenance.task == name
    assert study["m"]["performance"].provenance.sentence().count(f"task: {name}") == 1


def rows_of(study):
    result = study["m"]["performance"]
    return dict(zip(result.metric.tolist(), np.asarray(result.value).tolist(), strict=True))


def test_metrics_of_labels_by_own_code(studies, cases, images):
    model, labels = cases["multilabel"]
    with torch.no_grad():
        z = model(images).double()
    known = ~labels.isnan()
    rows = rows_of(studies["multilabel"])
    correct = torch.where(known, ((z > 0) == (labels > 0.5)).double(), torch.nan)
    assert rows["label accuracy"] == pytest.approx(float(correct.nanmean(1).mean()), abs=1e-6)
    losses = functional.softplus(-z * (2 * labels - 1))
    own = torch.where(known, losses, torch.nan).nanmean(1).mean()
    assert rows["binary NLL"] == pytest.approx(float(own), abs=1e-6)
    precisions = []
    for k in range(5):
        of_label = [(float(z[i, k]), float(labels[i, k])) for i in range(40) if known[i, k]]
        ranked = [y for _, y in sorted(of_label, reverse=True)]
        hits = [sum(ranked[: i + 1]) / (i + 1) for i, y in enumerate(ranked) if y == 1]
        precisions.append(sum(hits) / len(hits))
    assert rows["mean average precision"] == pytest.approx(np.mean(precisions), abs=1e-6)


def test_metrics_of_numbers_by_own_code(studies, cases, images):
    model, targets = cases["regression"]
    with torch.no_grad():
        predictions = model(images).double().numpy()
    targets = targets.double().numpy()
    errors, rows = predictions - targets, rows_of(studies["regression"])
    spread = np.abs(targets - np.median(targets, axis=0)).mean(0)
    assert rows["D²"] == pytest.approx((1 - np.abs(errors).mean(0) / spread).mean(), abs=1e-6)
    assert rows["squared error"] == pytest.approx((errors**2).mean(), rel=1e-6)
    assert rows["mean absolute error"] == pytest.approx(np.abs(errors).mean(), rel=1e-6)
    assert rows["bias (prediction - target)"] == pytest.approx(errors.mean(), rel=1e-6)
    variance = ((targets - targets.mean(0)) ** 2).sum(0)
    assert rows["R²"] == pytest.approx((1 - (errors**2).sum(0) / variance).mean(), rel=1e-6)


def test_metrics_of_masks_by_own_code(studies, cases, images):
    model, masks = cases["segmentation"]
    with torch.no_grad():
        z = model(images).double()
    known, guess = masks != 255, z.argmax(1)
    rows = rows_of(studies["segmentation"])
    assert rows["pixel accuracy"] == pytest.approx(
        float((guess == masks)[known].double().mean()), abs=1e-6
    )
    ious = []
    for c in range(4):
        a, b = (guess == c) & known, (masks == c) & known
        ious.append(float((a & b).sum() / (a | b).sum()))
    assert rows["mean IoU"] == pytest.approx(np.mean(ious), abs=1e-6)
    own = functional.cross_entropy(z, masks, ignore_index=255)
    assert rows["pixel NLL"] == pytest.approx(float(own), abs=1e-6)


def test_the_reference_of_an_ablation_and_the_loss_of_a_hessian_are_the_tasks(
    studies, cases, images
):
    for name, made in (("multilabel", Multilabel()), ("segmentation", Segmentation())):
        model, targets = cases[name]
        with torch.no_grad():
            outcome = made.outcome(model(images), made.targets(targets, model(images)))
        reference = studies[name]["m"]["ablation"].baseline_accuracy
        assert reference == pytest.approx(float(outcome.mean()), abs=1e-6)
    model, targets = cases["regression"]
    head = model[-1]
    with torch.no_grad():
        features = model[:-1](images).double()
    inputs = torch.cat([features, torch.ones(40, 1)], 1)  # the squared error is quadratic
    expected = torch.linalg.eigvalsh(inputs.T @ inputs / 40)[-1]  # 2 / 2 outputs
    model.requires_grad_(False)
    head.requires_grad_(True)
    try:
        one = vp.Hessian(k=1, which="LA", mini_batch=40)
        spectrum = vp.examine({"m": model}, [(images, targets)], analyses=[one])["m"]
        value = spectrum.results("hessian")[-1].value[0]
    finally:
        model.requires_grad_(True)
    assert value == pytest.approx(float(expected), rel=1e-4)


def planned(model, batches, **options):
    seen = []
    study = vp.examine({"m": model}, batches, listener=seen.append, **options)
    (plan,) = (event for event in seen if isinstance(event, vp.Planned))
    return study, " ".join(plan.preparation)


def test_where_the_task_comes_from_is_shown(images):
    ages = torch.arange(40) + 20
    _, text = planned(network(1), in_batches(images, ages), analyses=["performance"])
    assert "task: regression (the model returns one number" in text
    _, text = planned(network(1), in_batches(images, ages % 2), analyses=["performance"])
    assert "task: multilabel" in text
    study, text = planned(
        network(5, nn.Sigmoid()), in_batches(images, ages % 5), analyses=["performance"]
    )
    assert "ends in a sigmoid" in text
    own = Multilabel().outcome(
        network(5)(images).detach(), functional.one_hot(ages % 5, 5).float()
    )  # a sigmoid is taken back
    assert rows_of(study)["label accuracy"] == pytest.approx(float(own.mean()), abs=1e-6)
    _, text = planned(
        network(5), in_batches(images, ages % 5), analyses=["performance"], task="multilabel"
    )
    assert "task: multilabel (as given)" in text


def test_features_have_no_outcome_and_say_so_once(images):
    model = timm.create_model("vit_tiny_patch16_224", img_size=16, num_classes=0).eval()
    study = vp.examine(
        {"m": model}, in_batches(images, torch.arange(40) % 5),
        analyses=["calibration", "ablation", "hessian", "variance"],
    )  # fmt: skip
    assert set(study.analyses) == {"variance"}
    assert {f.reason for f in study.failures} == {study.failures[0].reason}
    assert "192 features, not classes" in study.failures[0].reason


def test_a_task_of_a_user_is_ten_lines(images):
    @task
    class Direction(Task):
        """An angle in degrees, from a sine and a cosine."""

        name = "direction"
        outcome_name = "cosine of the angle"
        loss_name = "1 - cosine"

        def outcome(self, outputs, targets):
            return functional.cosine_similarity(outputs, self.unit(targets.to(outputs)))

        def loss(self, outputs, targets):
            return 1 - self.outcome(outputs, targets)

        def unit(self, targets):
            return torch.stack([targets.deg2rad().sin(), targets.deg2rad().cos()], 1)

    try:
        angles = torch.arange(40.0) * 9
        model = network(2)
        study, text = planned(
            model, in_batches(images, angles), analyses=EVERY, task="direction",
            preprocessing=PIXELS,
        )  # fmt: skip
        assert not study.failures
        assert "task: direction" in text
        own = (
            functional.cosine_similarity(model(images), Direction().unit(angles))
            .mean()
            .detach()
        )
        assert rows_of(study)["cosine of the angle"] == pytest.approx(float(own), abs=1e-6)
        assert any("cosine of the angle" in line for line in study.lines())
    finally:
        TASKS._functions.pop("direction")


def test_balanced_accuracy_and_the_worst_class(images):
    class Constant(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 1)

        def forward(self, x):
            return 0 * self.conv(x).mean((2, 3)) + torch.tensor([2.0, 0.0, 1.0])

    targets = torch.tensor([0] * 30 + [1] * 5 + [2] * 5)
    rows = vp.examine(
        {"m": Constant().eval()}, in_batches(images, targets), analyses="performance"
    )
    values = rows_of(rows)
    assert values["balanced accuracy"] == pytest.approx(1 / 3)
    assert values["worst class"] == 0


def test_masks_below_the_size_of_the_image_and_ignored_pixels():
    made = Segmentation()
    outputs = torch.zeros(1, 2, 2, 2)
    outputs[:, 1] = 3.0
    masks = torch.ones(1, 8, 8, dtype=torch.long)
    masks[0, :4] = 255
    assert made.outcome(outputs, masks).item() == 1
    assert made.loss(outputs, masks).item() == pytest.approx(np.log1p(np.exp(-3)), rel=1e-6)
    with pytest.raises(vp.InputError, match="classes of masks must be below 2"):
        made.targets(masks + 5, outputs)


def test_the_outcome_of_a_regression_is_scikit_learns_d2():
    metrics = pytest.importorskip("sklearn.metrics")
    draw = torch.Generator().manual_seed(0)
    targets, outputs = torch.randn(2, 50, 1, generator=draw)
    made = Regression().fitted(targets)
    own = metrics.d2_absolute_error_score(targets.numpy(), outputs.numpy())
    assert float(made.outcome(outputs, targets).mean()) == pytest.approx(own, rel=1e-5)


def test_intervals_of_outcomes_that_are_fractions_cover_the_truth():
    draw, covered = np.random.default_rng(0), np.zeros(2)
    for _ in range(400):  # fractions of ten labels, and their paired differences
        chance = draw.beta(4, 1, size=100)
        first, other = (draw.binomial(10, chance) / 10 for _ in range(2))
        number, drop = mean(first, proportion), mean(first - other, paired_proportion)
        covered += [number.low <= 0.8 <= number.high, drop.low <= 0 <= drop.high]
    assert (covered / 400 >= 0.92).all()
    assert (covered / 400 <= 0.98).all()
    ones = (draw.random(50) < 0.8).astype(float)
    assert mean(ones, proportion).low != mean_interval(ones)[0]  # Wilson's for 0 and 1


@pytest.fixture
def drawn(tmp_path):
    """Images with a table of two labels, a number and a class, and with masks."""
    draw = np.random.default_rng(0)
    rows = ["file_name,left,right,size,name"]
    for folder in ("images", "masks"):
        (tmp_path / folder).mkdir()
    for i in range(24):
        pixels = draw.integers(0, 50, (16, 16, 3), dtype=np.uint8)
        mask = np.zeros((16, 16), np.uint8)
        mask[:, : i % 8] = 1
        pixels[:, : i % 8] += 200
        Image.fromarray(pixels).save(tmp_path / "images" / f"{i}.png")
        Image.fromarray(mask).save(tmp_path / "masks" / f"{i}.png")
        rows.append(f"{i}.png,{i % 2},{i % 3 == 0:d},{i % 8 / 2},{'ab'[i % 2]}")
    (tmp_path / "images" / "metadata.csv").write_text("\n".join(rows))
    return tmp_path


@pytest.mark.parametrize(
    ("options", "outputs", "name"),
    [
        ("label=left,right", 2, "multilabel"),
        ("label=size", 1, "regression"),
        ("label=name", 2, "classification"),
        ("masks={}/masks", 2, "segmentation"),
    ],
)
def test_targets_of_folders_are_tables_and_masks(drawn, options, outputs, name):
    model = dense(outputs) if name == "segmentation" else network(outputs)
    study = vp.examine(
        {"m": model}, f"folder:{drawn}/images?{options.format(drawn)}", size=(16, 16),
        analyses=["performance", "hessian", "frequency-noise"],
    )  # fmt: skip
    assert not study.failures
    assert study["m"]["performance"].provenance.task == name


def test_masks_follow_their_images(drawn):
    class Bright(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 2, 1)

        def forward(self, x):
            bright = x.mean(1, keepdim=True) - 0.5
            return 0 * self.conv(x) + 50 * torch.cat([-bright, bright], 1)

    study = vp.examine(
        {"m": Bright().eval()}, f"folder:{drawn}/images?masks={drawn}/masks", size=(16, 16),
        analyses="performance",
    )  # fmt: skip
    assert rows_of(study)["mean IoU"] == 1
    (drawn / "masks" / "3.png").unlink()
    with pytest.raises(vp.InputError, match="mask of each of 24 images"):
        vp.load_data(f"folder:{drawn}/images?masks={drawn}/masks")


def test_of_several_maps_none_is_taken_because_it_is_last(images):
    class Auxiliary(nn.Module):
        def __init__(self, names):
            super().__init__()
            self.net, self.names = dense(3), names

        def forward(self, x):
            y = self.net(x)
            return dict(zip(self.names, (y, -y), strict=True))

    masks = torch.zeros(40, 16, 16, dtype=torch.long)
    batches = in_batches(images, masks)
    chosen = vp.examine(
        {"m": Auxiliary(("out", "aux")).eval()}, batches, analyses="performance"
    )
    plain = vp.examine({"m": dense(3)}, batches, analyses="performance")
    assert rows_of(chosen) == pytest.approx(rows_of(plain), nan_ok=True)
    with pytest.raises(vp.InputError, match="must be known, got main"):
        vp.examine({"m": Auxiliary(("main", "side")).eval()}, batches, analyses="performance")
