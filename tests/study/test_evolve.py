"""Laws of the evolution over checkpoints."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from rounding import assert_equal_up_to_rounding
from torch import nn

import visprism as vp
from visprism.cli import main
from visprism.cli.output import print_study
from visprism.estimates.estimated import Estimated
from visprism.results import CurvatureDuringTraining, Evolution
from visprism.study.evolve import joined
from visprism.study.exports import json_of

STEPS = (0, 5, 100)


@pytest.fixture
def nets(net):
    return {step: net(seed) for seed, step in enumerate(STEPS)}


def plain(folder, step, model):
    torch.save(model.state_dict(), folder / f"net_{step}.pt")


def of_timm(folder, step, model):
    content = {"epoch": step, "arch": "net", "state_dict": model.state_dict()}
    torch.save(content, folder / f"checkpoint-{step}.pth.tar")
    torch.save(content, folder / "last.pth.tar")
    torch.save(content, folder / f"recovery-{step}-50.pth.tar")


def named_by_epoch_and_metric(folder, step, model):
    content = {"epoch": step, "model_state_dict": model.state_dict(), "optimizer": {"lr": 0.1}}
    torch.save(content, folder / f"epoch={step}-val_acc=0.{90 - step}.pt")


def curves(study, run, analysis):
    return [r for r in study.model(run).results(analysis) if isinstance(r, Evolution)]


@pytest.fixture
def run(tmp_path, nets):
    """The folder of a run with three checkpoints."""
    folder = tmp_path / "run"
    folder.mkdir()
    for step, model in nets.items():
        plain(folder, step, model)
    return folder


@pytest.mark.parametrize(
    "write",
    [plain, of_timm, named_by_epoch_and_metric],
)
def test_the_curve_has_the_numbers_of_each_checkpoint(tmp_path, nets, net, loader, write):
    folder = tmp_path / "run"
    folder.mkdir()
    for step, model in nets.items():
        write(folder, step, model)
    study = vp.evolve(folder, loader, model=net(9), analyses="calibration")
    (nll,) = [c for c in curves(study, "run", "calibration") if c.quantity == "NLL"]
    assert nll.step.tolist() == list(STEPS)
    for number, model in enumerate(nets.values()):
        expected = vp.calibration(vp.predict(model, loader)).nll
        assert_equal_up_to_rounding(nll.value[number], expected)
        assert_equal_up_to_rounding(nll.value.low[number], expected.low)


def test_spectra_and_cka_of_every_run_are_shown_at_each_step(tmp_path, nets, net, loader, run):
    second = tmp_path / "second"
    second.mkdir()
    for step in STEPS[:2]:
        plain(second, step, nets[step])
    analyses = ("fourier", "cka", "variance")
    made = vp.evolve([run, second], loader, model=net(9), analyses=analyses, out=tmp_path / "o")
    study = vp.Study.load(tmp_path / "o")
    models = ("run", "second")
    first, other = (curves(study, name, "variance")[0] for name in models)
    assert first == curves(made, "run", "variance")[0]
    assert (first.quantity, set(first.part)) == ("Feature-map variance, by block", {"stem"})
    assert first.select(first.step < 100) == other


def test_cka_with_the_last_step_is_that_of_both_checkpoints(run, nets, net, loader):
    study = vp.evolve(run, loader, model=net(9), analyses="cka")
    (curve,) = curves(study, "run", "cka")
    assert set(curve.step) == {0, 5}  # it is 1 at the last step, 100
    both = {"now": nets[5], "last": nets[100]}
    pairs = [e for e in vp.examine(both, loader, analyses="cka").entries if len(e.models) == 2]
    similarity = pairs[0].results[0]
    at_5 = curve.select(curve.step == 5)
    assert len(at_5) > 0
    for block, value in zip(at_5.part, at_5.value, strict=True):
        row = (similarity.block == block) & (similarity.other == block)
        assert_equal_up_to_rounding([value], similarity.cka[row])


def test_a_sentence_names_the_step_at_which_half_of_the_change_is_over():
    value = np.array([0.1, 0.1, 0.6, 0.8, 0.9])
    curve = Evolution(
        step=np.arange(5) * 10,
        part=np.full(5, "mlp"),
        value=Estimated(value, value - 0.01, value + 0.01),
        quantity="share",
        unit="%",
    )
    (finding,) = curve.findings()
    assert "from step 20, less than half of the change is left" in str(finding)


def test_what_a_monitor_has_measured_is_shown_with_its_alarms_without_data(
    tmp_path, net, loader, capsys
):
    run, page, model = tmp_path / "run", tmp_path / "page", net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    analyses = ("variance", "calibration", "training-curvature")
    monitor = vp.Monitor(loader, analyses, every=2, share=1.0, out=run)
    for step in range(1, 7):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(loader[0][0]), loader[0][1]).backward()
        optimizer.step()
        if step == 4:  # no channel is above 0 before the first ReLU
            nn.init.constant_(model.conv.bias, -100)
        monitor.step(model, step, optimizer)
    with pytest.raises(vp.InputError, match="analyses must be left out without data"):
        vp.evolve(run, analyses="cka")
    with pytest.raises(vp.InputError, match="The studies of its monitor need no data"):
        vp.evolve(run, loader, model=net(1))
    assert main(["evolve", str(run), "--out", str(page)]) == 0
    study = vp.Study.load(page)
    (curvature,) = study["training-curvature"].values()
    assert isinstance(curvature, CurvatureDuringTraining)
    assert curvature.step.tolist() == [2, 4, 6]
    assert curves(study, "run", "calibration")[0].step.tolist() == [2, 4, 6]
    assert (page / "figures" / "calibration-evolution.svg").exists()
    said = [capsys.readouterr().out]
    said += [(page / n).read_text("utf-8") for n in ("study.md", "results.json", "report.html")]
    assert all("more than 20% of the channels are 0 everywhere" in text for text in said)


def test_an_evolution_resumes(run, tmp_path, net, loader):
    def written():
        vp.evolve(run, loader, model=net(9), analyses="variance", out=tmp_path / "out")
        return {p: p.stat().st_mtime_ns for p in (tmp_path / "out" / "run").rglob("*.npz")}

    before = written()
    assert len(before) >= len(STEPS)
    assert written() == before


def test_images_that_can_be_read_once_are_those_of_each_checkpoint(run, net, loader):
    once, again = (
        vp.evolve(run, data, model=net(9), analyses="variance")
        for data in (iter(loader), loader)
    )
    assert once["run"]["variance"] == again["run"]["variance"]
    assert curves(once, "run", "variance") == curves(again, "run", "variance")


def test_runs_that_begin_with_the_same_weights_are_both_stored(tmp_path, net, loader):
    same = vp.examine(net(), loader, analyses="fourier")
    study = joined({run: {0: same, 1: same} for run in "ab"})
    study.save(tmp_path)
    stored = vp.Study.load(tmp_path)
    assert [entry.models for entry in stored.entries] == [("a",), ("b",)]


def test_the_command_line_states_the_images_of_checkpoints(tmp_path, monkeypatch):
    seen = []

    def stop(*_, **given):
        seen.append((given["limit"], given["normalization"]))
        raise vp.InputError("enough")

    monkeypatch.setattr("visprism.study.evolve.evolve", stop)
    words = ["--data", "shapes", "--out", str(tmp_path / "out"), "--normalization", "none"]
    assert main(["evolve", "run", *words]) == 2
    assert seen == [(256, "none")]


def test_snapshots_that_name_their_model_need_no_name(tmp_path):
    def save(step, name):
        path = tmp_path / "snapshots" / f"step-{step:08d}.safetensors"
        model = vp.load_model(name).model
        vp.save_checkpoint(model, path, provenance=vp.Provenance(model=name))

    (tmp_path / "snapshots").mkdir()
    for step in (0, 3):
        save(step, "resnet20")
    images = [torch.rand(4, 3, 32, 32)]
    study = vp.evolve(tmp_path, images, analyses="variance")
    assert curves(study, tmp_path.name, "variance")[0].step[-1] == 3
    save(6, "vit_pico_patch4_32")
    with pytest.raises(vp.InputError, match=r"one network, and .*6\.safetensors is of another"):
        vp.evolve(tmp_path, images, analyses="variance", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()  # none was measured


def test_an_analysis_that_fails_at_an_earlier_step_is_said(nets, loader):
    studies = {
        step: vp.examine({"net": net}, loader, analyses=["variance"])
        for step, net in nets.items()
    }
    failures = (vp.Failure("net", "variance", "no room."), vp.Failure("net", "cka", "no room."))
    for step in STEPS[:2]:
        studies[step] = replace(studies[step], failures=failures)
    studies[100] = replace(studies[100], failures=failures[1:])
    found = [(f.model, f.analysis) for f in joined({"run": studies}).failures]
    assert found == [("run", "cka"), ("run", "variance at step 0")]


def cut(path):
    path.write_bytes(path.read_bytes()[:200])


def test_a_damaged_checkpoint_is_left_out_and_said(run, tmp_path, nets, net, loader, capsys):
    nets[100].head.weight.data[0] = float("nan")
    for step in (100, 7):
        plain(run, step, nets[100])
    cut(run / "net_7.pt")
    study = vp.evolve(run, loader, model=net(9), analyses=("variance", "cka"))
    assert curves(study, "run", "variance")[0].step.tolist() == [0, 5]
    print_study(study)
    printed, stored = capsys.readouterr().out, json.loads(json_of(study))
    study.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    faults = {7: "it is not an archive", 100: "hold NaN or infinite values"}
    for (step, fault), failure in zip(faults.items(), stored["failures"], strict=True):
        assert failure["analysis"] == f"step {step}"
        assert failure["reason"].startswith(f"{run / f'net_{step}.pt'} was refused: ")
        assert fault in failure["reason"]
        assert printed.count(failure["reason"]) == page.count(failure["reason"]) == 1
    for step in (0, 5, 100):
        cut(run / f"net_{step}.pt")
    with pytest.raises(vp.InputError, match=r"net_0\.pt was refused"):
        vp.evolve(run, loader, model=net(9), analyses="variance")


def test_a_folder_that_is_not_a_run_and_what_is_missing_are_named(tmp_path, net, loader):
    def refused(sentence, folder=tmp_path, data=loader, **options):
        with pytest.raises(vp.InputError, match=sentence):
            vp.evolve(folder, data, analyses="variance", out=tmp_path / "out", **options)
        assert not (tmp_path / "out").exists()

    refused("runs must be folders", tmp_path / "none")
    refused("runs must have different file", {"lr 0.1": tmp_path, "lr (0.1)": tmp_path})
    plain(tmp_path, 1, net())
    refused("at least two checkpoints", model=net(9))
    plain(tmp_path, 2, nn.Linear(3, 5))
    refused("net_2.pt does not match the model", model=net(9))
    refused("model must be named for")
    refused("data must be images for the checkpoints", data=None)
    torch.save(net().state_dict(), tmp_path / "other_1.pt")
    refused("one checkpoint for each step", model=net(9))
    for name in ("net_2.pt", "other_1.pt"):
        (tmp_path / name).unlink()
    plain(tmp_path, 3, net())
    late = vp.Run(deadline=time.monotonic() - 1)
    refused("time for a checkpoint, got none measured", model=net(9), run=late)


def test_a_short_run_has_its_start_and_its_end_and_the_name_of_its_folder(tmp_path):
    images = vp.load_data("shapes", split="train", limit=20)
    recipe = vp.load_recipe("quick").replace(
        epochs=1, batch_size=20, warmup=0, precision="fp32", snapshot_every=1
    )
    network = vp.load_model("resnet20")
    feed = vp.memory_feed(images, network.preprocessing, 20, augmentation=recipe.augmentation)
    vp.fit(network.model, feed, recipe, folder=tmp_path / "short" / "ckpt")
    batches = list(vp.batches(images, network.preprocessing, 20))
    folder = tmp_path / "short" / "ckpt"
    study = vp.evolve(folder, batches, model="resnet20", analyses="calibration")
    assert study.models == ("short",)
    curves = [r for e in study.entries for r in e.results if isinstance(r, Evolution)]
    assert curves[0].step.tolist() == [0, 1]
