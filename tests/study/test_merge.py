"""Studies of one model each, by commands that know nothing of each other, become one study."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from visprism import Compute, InputError, Run, Study, Variance, examine
from visprism.cli import main
from visprism.estimates.questions import question_of

NETWORKS = """
import torch

def network(width):
    torch.manual_seed(width)
    layers = torch.nn.Conv2d(3, width, 3, 2), torch.nn.ReLU(), torch.nn.Conv2d(width, width, 3)
    head = torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(width, 10)
    return torch.nn.Sequential(*layers, *head).eval()

def four(): return network(4)
def five(): return network(5)
def six(): return network(6)
"""


def measured(study):
    """The table without timings, which no two runs share."""
    return [row for row in study.table() if question_of(row.question).topic != "cost"]


def test_a_merged_study_of_jobs_equals_one_study(tmp_path, monkeypatch):
    (tmp_path / "nets.py").write_text(NETWORKS)
    models = {name: f"{tmp_path / 'nets.py'}:{name}" for name in ("four", "five", "six")}
    images = ["--data", "shapes", "--limit", "24", "--effort", "full"]
    folders = [tmp_path / f"job-{name}" for name in models]
    with monkeypatch.context() as patch:  # their pages are not needed
        patch.setattr("visprism.study.files.write_files", lambda *_, **__: None)
        for model, folder in zip(models.values(), folders, strict=True):
            chosen = ["--analyses", "calibration", "--quiet"]
            assert main(["examine", model, *images, *chosen, "--out", str(folder)]) == 0
    assert main(["merge", *map(str, folders), "--out", str(tmp_path / "all")]) == 0
    assert (tmp_path / "all" / "report.html").is_file()
    study = Study.load(tmp_path / "all")

    settings = {"analyses": "calibration", "effort": "full"}
    settings |= {"limit": 24}
    expected = examine(list(models.values()), "shapes", **settings)
    rows = [row for row in measured(expected) if row.cells]  # with differences
    assert any(len(row.differences) == 3 for row in rows)
    assert study.header["speed"].keys() == set(study.models)
    assert repr(measured(study)) == repr(rows)  # NaN is not equal to itself

    # What measures two models together is added when the merged study is resumed.
    assert [f.analysis for f in study.failures] == ["calibration"]
    keys = {entry.key for entry in study.entries}
    resumed = examine(list(models.values()), "shapes", out=tmp_path / "all", **settings)
    assert repr(measured(resumed)) == repr(measured(expected))
    added = [entry.models for entry in resumed.entries if entry.key not in keys]
    assert sorted(added) == [("five", "six"), ("four", "five"), ("four", "six")]
    assert not resumed.failures


@pytest.fixture
def studied(net, loader, brightness):
    """`studied(name, ...)`: a study of one network."""

    def studied(name, data=loader, **options):
        return examine({name: net()}, data, **{"analyses": [brightness, Variance()]} | options)

    return studied


def test_studies_of_other_images_are_refused(studied, loader):
    first = studied("a")
    others = [studied("b", loader[::-1]), studied("b", loader[:2])]
    assert Study.merge([first, studied("b")]).models == ("a", "b")
    for other in (*others, studied("b", run=Run(seed=1))):
        with pytest.raises(InputError, match="of the study of b and of the study of a differ"):
            Study.merge([first, other])


def test_an_interrupted_study_is_named(studied):
    first, other = studied("a"), studied("b")
    del other.header["positions"]
    sentence = "study of b must be complete, and was interrupted"
    for studies in ([first, other], [other, first]):
        with pytest.raises(InputError, match=sentence):
            Study.merge(studies)


def test_analyses_made_in_another_way_are_refused(studied, brightness):
    first, second = studied("a"), studied("b")
    for reason, options in {
        "precision": {"run": Run(Compute(precision="bf16"))},
        "batch size": {"batch_size": 5},
        "options": {"analyses": [replace(brightness, offset=1.0)]},
    }.items():
        sentence = f"(brightness|variance) must have the same {reason} in all"
        with pytest.raises(InputError, match=sentence):
            Study.merge([first, studied("b", **options)])
    with pytest.raises(InputError, match="different names, and a is in two studies"):
        Study.merge([first, first])
    for entry in second.entries:
        object.__setattr__(entry.results[0].provenance, "torch", "2.8.0")
    with pytest.raises(InputError, match=f"version of torch .* {torch.__version__[:4]}"):
        Study.merge([first, second])
    with pytest.raises(InputError, match="at least one study"):
        Study.merge([])


def test_a_study_is_not_merged_into_itself_or_over_another(studied, tmp_path, capsys):
    a, b, other = (str(tmp_path / name) for name in ("a", "b", "other"))
    for folder in (a, b, other):
        studied(Path(folder).name, out=folder)
    assert main(["merge", a, b, "--out", b]) == 2
    assert "out must be another folder" in capsys.readouterr().err
    assert main(["merge", a, b, "--out", other]) == 2
    assert "got " + other + " with other. Choose another folder" in capsys.readouterr().err
    assert Study.load(other).models == ("other",)


def test_models_of_a_list_without_a_complete_study_are_named(tmp_path, capsys, monkeypatch):
    (tmp_path / "nets.py").write_text(NETWORKS)
    monkeypatch.setattr("visprism.study.files.write_files", lambda *_, **__: None)
    models = [f"{tmp_path / 'nets.py'}:{name}" for name in ("four", "five", "six")]
    images = ["--data", "shapes", "--limit", "8", "--effort", "full", "--analyses", "variance"]
    for name, model in zip("ab", models[:2], strict=True):
        out = ["--quiet", "--out", str(tmp_path / "jobs" / name)]
        assert main(["examine", model, *images, *out]) == 0
    (tmp_path / "jobs" / "c").mkdir()  # of a job that died
    folders = [str(path) for path in sorted((tmp_path / "jobs").iterdir())]
    listed = tmp_path / "models.txt"
    merge = ["merge", *folders, "--expect", str(listed), "--out"]
    capsys.readouterr()
    listed.write_text("\n".join(models))
    assert main([*merge, str(tmp_path / "all")]) == 1
    left, missing = capsys.readouterr().err.splitlines()
    assert left.startswith(f"{tmp_path / 'jobs' / 'c'} is left out: ")
    assert missing.endswith(f"3 models, and there is no complete study of {models[2]} (line 3)")
    assert Study.load(tmp_path / "all").models == ("four", "five")
    listed.write_text("\n".join(models[:2]))
    assert main([*merge, str(tmp_path / "two")]) == 0
    listed.write_text("\n".join([models[0], "", models[1]]))
    assert main([*merge, str(tmp_path / "none")]) == 2
    assert "and line 2 is empty" in capsys.readouterr().err
