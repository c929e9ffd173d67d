"""Laws of analyses (src/visprism/analyses): each is declared once, and completely."""

from dataclasses import fields, is_dataclass

import pytest
import torch

from visprism import ANALYSES
from visprism.core.options import options_of
from visprism.kit.inputs import subject_of

NAMES = list(ANALYSES)


@pytest.fixture(params=NAMES)
def analysis(request):
    return ANALYSES[request.param]


def test_every_field_is_an_option_with_a_default_that_fits_and_a_help_text(analysis):
    assert is_dataclass(analysis)
    assert {f.name for f in fields(analysis) if f.repr} == set(options_of(analysis))
    for option in options_of(analysis).values():
        assert option.info.help
        assert not option.info.help.endswith(".")
        assert option.constraint
        given = option.default if isinstance(option.default, tuple) else (option.default,)
        if given not in {(None,), ()}:  # written as text, a default keeps its value
            assert option.parse(",".join(map(str, given))) == option.default
    analysis()  # the defaults fit


def test_analyses_that_cost_derivatives_state_that_they_need_full_precision(network):
    batch = torch.zeros(16, 3, 32, 32), torch.arange(16) % 10
    subject = subject_of(network(0), [batch])
    costs = {name: ANALYSES[name]().cost(subject) for name in ANALYSES}
    derivatives = {name for name, cost in costs.items() if cost.gradients or cost.products}
    assert derivatives <= {name for name in ANALYSES if ANALYSES[name].full_precision}
