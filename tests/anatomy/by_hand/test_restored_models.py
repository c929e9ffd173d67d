"""Surgery restores the model: after the ``with`` block it is unchanged."""

import copy

import pytest
import torch
from torch import nn

import visprism as vp
from visprism import ablate, replace, watch


def hooks(model):
    return [
        (len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks))
        for m in model.modules()
    ]


def exactly(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


OPERATIONS = {
    "watch": lambda a: watch(a),
    "lesion": lambda a: ablate(a, a[1]),
    "replace": lambda a: replace(a, a[1], torch.zeros_like),
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_leaves_no_scar_even_when_the_body_fails(anatomy, images, operation):
    model = anatomy.model
    before = copy.deepcopy(model.state_dict()), model(images), hooks(model)

    def run_and_fail():
        model(images)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), operation(anatomy):
        run_and_fail()
    assert hooks(model) == before[2]
    exactly(model.state_dict(), before[0])
    exactly(model(images), before[1])


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_a_failed_pass_does_not_disturb_the_next_one(anatomy, images, operation):
    with operation(anatomy):
        wanted = anatomy.model(images)
        with pytest.raises(Exception, match=r"input|size|height"):
            anatomy.model(torch.zeros(2, 7, 16, 16))
        exactly(anatomy.model(images), wanted)


def test_gradients_flow_through_a_lesion_and_past_its_block(anatomy_of, images):
    anatomy = anatomy_of("functional")
    with ablate(anatomy, anatomy["convs.0"]):
        anatomy.model(images).sum().backward()
    cut, gradient = (conv.weight.grad for conv in anatomy.model.convs[:2])
    assert gradient.abs().sum() > 0
    assert cut is None or cut.abs().sum() == 0


class Caching(nn.Module):
    """Keeps what it adds, as networks keep the positions of their last size."""

    def __init__(self, *, stated):
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 4, 4, 4), nn.Linear(4, 3)
        if stated:
            self.register_buffer("kept", torch.zeros(1, 1, 1), persistent=False)

    def forward(self, x):
        x = self.stem(x)
        if not hasattr(self, "kept") or self.kept.shape != x.shape[1:]:
            kept = torch.linspace(0, 1, x[0].numel()).view(x.shape[1:])
            self.register_buffer("kept", kept, persistent=False)
        return self.head((x + self.kept.expand(len(x), -1, -1, -1) * x).relu().mean((2, 3)))


@pytest.mark.parametrize("analysis", [vp.Variance(), vp.TokenNorms(), vp.Hessian()])
@pytest.mark.parametrize("stated", [True, False])
def test_a_model_that_kept_a_tensor_of_inference_mode_is_measured(analysis, stated):
    model, fresh = (Caching(stated=stated).eval() for _ in range(2))
    fresh.load_state_dict(model.state_dict())
    batches = [(torch.rand(6, 3, 16, 16), torch.tensor([0, 1, 2, 0, 1, 2]))]
    with torch.inference_mode():
        model(batches[0][0])
    kept = model.kept
    results = analysis(model, batches), analysis(fresh, batches)
    assert model.kept is kept
    assert kept.is_inference()
    vp.assert_results_equal(*results)
