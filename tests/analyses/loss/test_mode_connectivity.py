"""Laws of linear mode connectivity and soups."""

import numpy as np
import pytest
import torch
from maps import classifier
from torch import nn
from torch.nn import functional

from visprism import ModeConnectivity


def mode_connectivity(model, states, batches, **options):
    return ModeConnectivity(**options).of(model, states, batches)


CLASSES = 3


def normalized(seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU()
        model = classifier(*layers, channels=6, classes=CLASSES).train()
        for _ in range(5):
            model(torch.randn(16, 3, 8, 8))
        return model.eval()


def data(side, number=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(number, 3, side, side, generator=generator)
    return images, torch.arange(number) % CLASSES


def test_the_loss_of_a_permuted_copy_is_equal_at_both_ends_and_higher_between():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, CLASSES)
        model = nn.Sequential(nn.Flatten(), *layers).eval()
    images, _ = data(2, number=200)
    with torch.no_grad():
        model[3].weight.mul_(8)
        targets = model(images).argmax(1)  # so that the model is good
    order = torch.randperm(16, generator=torch.Generator().manual_seed(1))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    for name, axis in (("1.weight", 0), ("1.bias", 0), ("3.weight", 1)):
        state[name] = state[name].index_select(axis, order)
    path, soup = mode_connectivity(model, {"permuted": state}, [(images, targets)], points=5)
    assert path.nll[0] == pytest.approx(path.nll[-1], rel=1e-5)
    assert path.accuracy[[0, -1]].tolist() == [1, 1]
    assert path.barrier[2].low > 0
    assert soup.accuracy[-1] < 1
    assert soup.accuracy[-1] == path.accuracy[2]  # two weights: the soup is the middle


def test_the_soup_of_three_is_the_mean_of_their_weights():
    models, (images, targets) = [], data(2)
    for seed in range(3):
        torch.manual_seed(seed)
        models.append(nn.Sequential(nn.Flatten(), nn.Linear(12, CLASSES)).double().eval())
    states = {str(seed): models[seed].state_dict() for seed in (1, 2)}
    _, soup = mode_connectivity(models[0], states, [(images.double(), targets)])
    with torch.no_grad():
        logits = torch.stack([model(images.double()) for model in models])
    every = torch.cat([logits, logits.mean(0, keepdim=True)])  # which are linear in the weights
    accuracy = (every.argmax(2) == targets).double().mean(1).numpy()
    assert soup.member.tolist() == ["model", "1", "2", "soup"]
    assert soup.accuracy == pytest.approx(accuracy)
    assert soup.gain == pytest.approx(accuracy[-1] - accuracy)


@pytest.mark.parametrize("batch_norm", ["reestimated", "interpolated"])
def test_a_point_is_a_model_with_mixed_weights(batch_norm):
    first, second, images = normalized(0), normalized(1), data(8)
    path, _ = mode_connectivity(
        first, {"b": second.state_dict()}, [images], points=5, batch_norm=batch_norm
    )
    for row, t in enumerate((0, 0.25, 0.5, 0.75, 1)):
        model, other = normalized(0), second.state_dict()
        state = {
            n: (1 - t) * v + t * other[n] if v.is_floating_point() else v
            for n, v in model.state_dict().items()
        }
        model.load_state_dict(state)
        if batch_norm == "reestimated":
            features = model[0](images[0])
            model[1].running_mean = features.mean((0, 2, 3)).detach()
            model[1].running_var = features.transpose(0, 1).flatten(1).var(1).detach()
        with torch.no_grad():
            logits = model(images[0])
        nll = functional.cross_entropy(logits, images[1]).item()
        assert path.nll[row] == pytest.approx(nll, abs=1e-5)
    line = np.linspace(path.nll[0], path.nll[-1], 5)
    assert path.barrier == pytest.approx(path.nll - line, abs=1e-6)


def test_the_cut_into_batches_does_not_matter():
    """Also with last batches of 1, 2, 10 and 50."""
    (images, targets), other = data(8, number=250), normalized(1).state_dict()

    def paths(size):
        cut = list(zip(images.split(size), targets.split(size), strict=True))
        return mode_connectivity(normalized(0), {"b": other}, cut, points=3)[0]

    uncut = paths(250)
    for size in (8, 24, 62, 83, 100):
        assert paths(size).nll == pytest.approx(uncut.nll, rel=1e-5)
        assert paths(size).barrier == pytest.approx(uncut.barrier, abs=1e-6)
