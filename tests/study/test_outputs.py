"""Which of several outputs holds the logits is known or asked for, never guessed."""

from argparse import Namespace

import pytest
import torch
from torch import nn

import visprism as vp
from visprism.cli import main


class TwoHeads(nn.Module):
    """A network with two heads; what it returns of them is up to `give`."""

    def __init__(self, give, auxiliary=5):
        super().__init__()
        self.stem, self.branch = (nn.Conv2d(c, 8, 3, padding=1) for c in (3, 8))
        self.head, self.auxiliary = nn.Linear(8, 5), nn.Linear(8, auxiliary)
        self.give = give

    def forward(self, x):
        x = self.stem(x).relu()
        parts = Namespace(a=self.auxiliary(x.mean((2, 3))))
        parts.x = x + self.branch(x).relu()
        parts.b = self.head(parts.x.mean((2, 3)))
        return self.give(parts)


def made(give, auxiliary=5):
    torch.manual_seed(0)
    return TwoHeads(give, auxiliary).eval()


BATCHES = [
    (torch.randn(16, 3, 8, 8, generator=torch.Generator().manual_seed(1)), torch.arange(16) % 5)
]
HEAD = vp.examine(made(lambda p: p.b), BATCHES, analyses="calibration").model("TwoHeads")[
    "calibration"
]


@pytest.mark.parametrize(
    ("give", "auxiliary", "output", "chosen"),
    [
        (lambda p: {"aux": p.a, "logits": p.b}, 5, None, ""),
        (lambda p: (p.x, p.b), 5, None, ""),
        (lambda p: {"aux": p.a, "main": p.b}, 7, None, "main"),
        (lambda p: (p.a, p.b), 5, "1", "1"),
    ],
    ids=["logits", "only vector", "classes", "number"],
)
def test_the_logits_are_found_by_name_shape_or_classes(give, auxiliary, output, chosen):
    events = []
    study = vp.examine(
        made(give, auxiliary),
        BATCHES,
        analyses="calibration",
        output=output,
        listener=events.append,
    )
    result = study["TwoHeads"]["calibration"]
    assert result == HEAD
    assert (f"logits: output {chosen}" in result.provenance.preprocessing) == bool(chosen)
    assert (f"logits: output {chosen}" in events[0].preparation[0]) == bool(chosen)


def test_an_output_that_is_chosen_for_one_study_is_not_chosen_for_the_next():
    model = made(lambda p: (p.a, p.b), auxiliary=4)
    ((images, targets),) = BATCHES
    for classes, output in ((5, "1"), (4, "0"), (5, "1")):
        data = [(images, targets % classes)]
        study = vp.examine(model, data, analyses="calibration")
        for result in (study["TwoHeads"]["calibration"], vp.Calibration()(model, data)):
            assert f"logits: output {output}" in result.provenance.preprocessing
    with pytest.raises(vp.InputError, match="Name it: output="):
        vp.predict(model, BATCHES)


@pytest.mark.parametrize("give", [lambda p: {"aux": p.a, "main": p.b}, lambda p: (p.a, p.b)])
def test_several_outputs_that_could_be_logits_are_listed(give):
    with pytest.raises(vp.InputError, match=r"\(2, 5\), (main|1) \(2, 5\). Name it: output="):
        vp.examine(made(give), BATCHES, analyses="calibration")
    with pytest.raises(vp.InputError, match=r"output must be one of .*, got 'x'"):
        vp.examine(made(give), BATCHES, analyses="calibration", output="x")


def test_the_command_line_names_an_output(tmp_path, capsys):
    (tmp_path / "net.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.stem, self.head = nn.Conv2d(3, 8, 3), nn.Linear(8, 10)\n"
        "    def forward(self, x):\n"
        "        x = self.stem(x).relu().mean((2, 3))\n"
        "        return {'aux': self.head(x) * 0, 'main': self.head(x)}\n"
        "def net(): return Net()\n"
    )
    spec, out = f"{tmp_path}/net.py:net", str(tmp_path / "out")
    words = ["--data", "shapes", "--limit", "16", "--analyses", "calibration", "--out", out]
    assert main(["examine", spec, *words]) == 2
    assert "--output NAME" in capsys.readouterr().err
    named = vp.load_model(f"{spec}?output=main").model
    assert vp.forward(named, torch.rand(2, 3, 8, 8)).shape == (2, 10)
    assert main(["examine", spec, *words, "--output", "main", "--verbose"]) == 0
    plan = capsys.readouterr().err
    assert f"logits: output main; fp32 on cpu; runs {tmp_path}/net.py" in plan
    assert "output main" in (tmp_path / "out" / "report.html").read_text("utf-8")
