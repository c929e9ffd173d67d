"""Laws of plans: which attacks are made, and how many passes an ablation takes."""

from itertools import product

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from visprism import InputError, ablation, dissect
from visprism.measure.outputs.ablation_plan import AblationSpec, ablation_passes
from visprism.measure.outputs.perturbation_ball import attack_grid

# Attacks.


def test_the_grid_holds_every_attack_at_every_size_once():
    attacks = attack_grid(
        ("fgsm", "pgd", "random"), (0.01, 0.02), norm="l2", steps=7, restarts=3
    )
    expected = {
        ("fgsm", "cross-entropy"),
        ("pgd", "cross-entropy"),
        ("pgd", "margin"),
        ("random", "cross-entropy"),
    }
    made = [(a.name, a.loss, a.epsilon) for a in attacks]
    assert len(made) == len(set(made)) == 8
    assert set(made) == {(*pair, e) for pair, e in product(expected, (0.01, 0.02))}
    assert {(a.norm, a.steps, a.restarts, a.frequency) for a in attacks} == {("l2", 7, 3, None)}


def test_with_bands_each_attack_stays_in_each_band():
    attacks = attack_grid(("fgsm",), (0.01,), frequencies=(0.3, 0.7))
    assert [a.frequency for a in attacks] == [0.3, 0.7]


def test_the_gradients_of_a_grid_are_counted_by_hand():
    attacks = attack_grid(("fgsm", "pgd", "random"), (0.01,), steps=5, restarts=2)
    # One of FGSM, 5 steps from 2 starts with 2 losses, none for random signs.
    assert sum(a.gradients for a in attacks) == 1 + 2 * 5 * 2


def test_a_grid_with_an_unknown_attack_is_refused():
    with pytest.raises(InputError, match=r"name must be one of apgd, .*, random, got 'cw'"):
        attack_grid(("cw",), (0.01,))


# Ablations.


class Tower(nn.Module):
    """Equal residual blocks, of which each is an equal part of a pass."""

    def __init__(self, depth: int):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 1)
        self.convs = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(depth))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = self.stem(x)
        for conv in self.convs:
            x = x + conv(x).relu()
        return self.head(x.mean((2, 3)))


@pytest.mark.parametrize("depth", [6, 16])
def test_the_cost_of_an_ablation_is_that_of_the_blocks_that_run(depth):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, images = Tower(depth).eval(), torch.randn(8, 3, 8, 8)
    anatomy = dissect(model, images[:1])
    batches = [(part, torch.zeros(4, dtype=torch.long)) for part in images.split(4)]
    with FlopCounterMode(display=False) as all_passes:
        ablation(anatomy, batches, parts=("blocks",))
    with FlopCounterMode(display=False) as one_pass, torch.no_grad():
        model(images)
    passes = all_passes.get_total_flops() / one_pass.get_total_flops()
    assert ablation_passes(anatomy, AblationSpec(("blocks",))) == pytest.approx(
        passes, rel=0.25
    )


def test_joint_ablations_cost_as_much_as_single_ones():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        anatomy = dissect(Tower(6).eval(), torch.randn(1, 3, 8, 8))
    blocks = AblationSpec(("blocks",))
    single = ablation_passes(anatomy, blocks)
    more = [ablation_passes(anatomy, blocks, (2, 3), draws) for draws in (1, 2, 4)]
    per_ablation = (single - ablation_passes(anatomy, AblationSpec(("convolutions",)))) / 6
    gains = [passes - single for passes in more]
    assert gains[1] == pytest.approx(2 * gains[0])
    assert gains[2] == pytest.approx(4 * gains[0])
    assert per_ablation <= gains[0] / 2
