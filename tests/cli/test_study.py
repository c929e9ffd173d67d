"""Laws of the commands that measure: what they write, print and resume."""

import csv
import json
import re
import signal
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

import visprism as vp
from visprism import ANALYSES, InputError, Result, Study
from visprism.cli import main
from visprism.cli.study_commands import measurements_end

FIRST, SECOND = "resnet20.shapes", "vit_pico_patch4_32.shapes"
KINDS = ("npz", "csv")  # of tables

pytestmark = pytest.mark.usefixtures("plugin")


def files_of(folder):
    """Names of files; those of results without the key of the result."""
    names = (str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
    return {re.sub(r"-[0-9a-f]{8}(?=\.(npz|csv)$)", "", name) for name in names}


def sparsity_of(folder, model=FIRST):
    (path,) = folder.glob(f"results/{model}-sparsity-sparsity-*.npz")
    return Result.load(path)


# How long a command takes.


@pytest.mark.parametrize(
    ("words", "minutes", "models", "analyses"),
    [
        ("sparsity {0} --data shapes", "2", 1, 1),
        ("sparsity {0} {1} --data shapes", "2", 2, 1),
        ("examine {0} {1} --data shapes --analyses sparsity,variance", "2", 2, 2),
        ("examine {0} --data shapes", "2", 1, None),
        ("demo", "2", 2, None),
        ("demo", "0.3", 2, None),  # a third of the budget is less
    ],
)
def test_measurements_leave_time_for_files_within_the_budget(
    monkeypatch, tmp_path, words, minutes, models, analyses
):
    runs = []

    def examine(*_, run, **__):
        runs.append(run)
        raise InputError("that is enough")

    monkeypatch.setattr("visprism.study.examine", examine)
    begin = time.monotonic()
    given = words.format(FIRST, SECOND).split()
    assert main([*given, "--minutes", minutes, "--out", f"{tmp_path}"]) == 2
    budget = 60 * float(minutes)
    analyses = analyses or len(ANALYSES.chosen(None))
    files = min(1 + 0.2 * models * analyses, budget / 3)
    assert begin + budget - files <= runs[0].deadline <= time.monotonic() + budget - files


def test_a_command_without_a_budget_has_no_deadline():
    assert measurements_end(time.monotonic(), None, models=2, analyses=3) is None


# What is written.


def test_a_command_writes_a_page_tables_and_figures_and_nothing_else(studied):
    assert files_of(studied) == {
        "report.html", "study.json", "study.md", "study.yaml", "results.json",
        *(f"results/{m}-sparsity-sparsity.{kind}" for m in (FIRST, SECOND) for kind in KINDS),
        "figures/sparsity.png", "figures/.visprism",
    }  # fmt: skip


def test_the_page_shows_both_models_and_the_text_of_the_section(studied):
    page = (studied / "report.html").read_text(encoding="utf-8")
    for text in (FIRST, SECOND, "Sparsity of feature maps", "ReLU networks are sparse"):
        assert text in page


def test_a_result_records_what_it_was_measured_by(studied):
    provenance = sparsity_of(studied).provenance
    assert provenance.model == FIRST
    assert "shapes" in provenance.data
    assert (provenance.images, provenance.image_shape) == (12, (3, 32, 32))
    assert provenance.command.startswith(f"visprism sparsity {FIRST} {SECOND} --data shapes")


def test_the_table_is_the_result(studied):
    (path,) = studied.glob(f"results/{FIRST}-sparsity-sparsity-*.csv")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    result = sparsity_of(studied)
    assert [row["block"] for row in rows] == result.block.tolist()
    np.testing.assert_array_equal([float(row["sparsity"]) for row in rows], result.sparsity)


def test_a_folder_of_the_command_line_is_a_study_in_python(studied):
    study = Study.load(studied)
    assert study.models == (FIRST, SECOND)
    assert study[FIRST]["sparsity"] == sparsity_of(studied)


def test_formats_are_those_that_are_named(study_command, tmp_path):
    assert main([*study_command, str(tmp_path), "--formats", "svg,pdf"]) == 0
    assert {p.suffix for p in (tmp_path / "figures").glob("[!.]*")} == {".svg", ".pdf"}


# The same command again.


def test_the_same_command_measures_nothing_and_leaves_the_same_bytes(
    studied, study_command, capsys
):
    before = {p: p.read_bytes() for p in studied.glob("results/*")}
    assert main([*study_command, str(studied)]) == 0
    assert "feature maps: " not in capsys.readouterr().err  # the progress of a pass
    assert {n: (studied / n).read_bytes() for n in before} == before


def test_the_same_command_in_another_folder_gives_the_same_numbers(
    studied, study_command, tmp_path
):
    assert main([*study_command, str(tmp_path)]) == 0
    for name in (FIRST, SECOND):
        assert sparsity_of(tmp_path, name) == sparsity_of(studied, name)
    first, second = (f / "figures" / "sparsity.png" for f in (tmp_path, studied))
    assert first.read_bytes() == second.read_bytes()


def test_fresh_measures_again(studied, study_command, capsys):
    assert main([*study_command, str(studied), "--fresh"]) == 0
    assert capsys.readouterr().err.count("feature maps: 3 done in ") == 2


def test_examine_measures_what_the_command_of_the_analysis_measures(studied, tmp_path):
    options = ["--limit", "12", "--batch-size", "4", "--analyses", "sparsity"]
    command = ["examine", FIRST, "--data", "shapes", *options, "--out", str(tmp_path)]
    assert main(command) == 0
    assert sparsity_of(tmp_path) == sparsity_of(studied)


# Options.


@pytest.mark.parametrize("words", [["sparsity", "--threshold", "1/2"], ["examine"]])
def test_an_option_reaches_the_measurement(words, tmp_path):
    command, *options = words
    if command == "examine":
        options = ["--analyses", "sparsity", "--set", "sparsity.threshold=0.5"]
    where = ["--data", "shapes", "--limit", "4", "--out", str(tmp_path)]
    assert main([command, FIRST, *where, *options]) == 0
    study = vp.examine(
        FIRST,
        "shapes",
        analyses=["sparsity"],
        options={"sparsity": {"threshold": 0.5}},
        images=vp.DataOptions(limit=4),
    )
    assert sparsity_of(tmp_path) == study[FIRST]["sparsity"]


def test_a_seed_gives_other_random_weights_and_the_same_seed_the_same(tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        options = ["--data", "shapes", "--limit", "4", "--seed", str(seed)]
        assert main(["sparsity", "resnet20", *options, "--out", f"{tmp_path}/{name}"]) == 0
    paths = sorted(tmp_path.glob("*/results/*.npz"))
    a, b, c = (Result.load(path) for path in paths)
    assert a == b
    assert a != c


# What is printed.


def test_the_plan_goes_to_stderr_and_the_table_to_stdout(studied, study_command, capsys):
    assert main([*study_command, str(studied)]) == 0
    printed = capsys.readouterr()
    assert "Plan:" in printed.err
    assert "32x32" in printed.err  # how the images are prepared
    assert printed.out.startswith("How sparse are feature maps? (mean sparsity)\n")
    assert printed.out.endswith(f"Wrote {studied / 'report.html'}\n")


def test_json_is_what_results_json_holds(studied, study_command, capsys):
    assert main([*study_command, str(studied), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((studied / "results.json").read_text("utf-8"))
    assert printed["models"] == [FIRST, SECOND]
    answers = printed["questions"][0]["answers"]
    assert answers[FIRST]["value"] == pytest.approx(sparsity_of(studied).sparsity.mean())


# Failures and interruptions.


def fail_on(monkeypatch, model, error):
    """Let the analysis raise on one model."""
    from visprism.analyses import ANALYSES

    analysis = ANALYSES["sparsity"]
    probe = analysis.probe

    def failing(self, subject):
        if subject.name == model:
            raise error
        return probe(self, subject)

    monkeypatch.setattr(analysis, "probe", failing)


def test_a_failed_analysis_ends_in_exit_code_1_and_the_others_are_written(
    study_command, tmp_path, capsys, monkeypatch
):
    fail_on(monkeypatch, FIRST, ValueError("no luck"))
    assert main([*study_command, str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert f"failed: sparsity of {FIRST}: ValueError: no luck" in printed.err
    assert f"sparsity of {FIRST}: ValueError: no luck" in printed.out
    assert files_of(tmp_path / "results") == {
        f"{SECOND}-sparsity-sparsity.{kind}" for kind in ("npz", "csv")
    }
    assert "no luck" in (tmp_path / "report.html").read_text("utf-8")


def test_ctrl_c_keeps_complete_results_and_the_same_command_resumes(
    study_command, studied, tmp_path, capsys, monkeypatch
):
    command = [*study_command, str(tmp_path)]
    with monkeypatch.context() as patched:
        fail_on(patched, SECOND, KeyboardInterrupt())
        assert main(command) == 130
    said = capsys.readouterr().err
    assert said.endswith(
        f"visprism: interrupted; 1 result is stored in {tmp_path}; the same command resumes\n"
    )
    assert not (tmp_path / "report.html").exists()
    assert main(command) == 0
    printed = capsys.readouterr().err
    assert printed.count("feature maps: 3 done in ") == 1  # the second model alone
    for name in (FIRST, SECOND):
        assert sparsity_of(tmp_path, name) == sparsity_of(studied, name)


def test_ctrl_c_before_the_first_result_says_so(study_command, tmp_path, capsys, monkeypatch):
    fail_on(monkeypatch, FIRST, KeyboardInterrupt())
    assert main([*study_command, str(tmp_path)]) == 130
    said = capsys.readouterr().err
    assert said.endswith("visprism: interrupted; no result was complete\n")


@pytest.mark.parametrize("moment", ["page_html", "json_of"])
def test_ctrl_c_while_files_are_written_leaves_the_old_ones(
    moment, study_command, tmp_path, capsys, monkeypatch
):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    assert main([*study_command, str(tmp_path)]) == 0
    (tmp_path / "report.html").write_text("of an earlier run")
    monkeypatch.setattr(f"visprism.study.files.{moment}", interrupt)
    assert main([*study_command, str(tmp_path)]) == 130
    assert "2 results are stored" in capsys.readouterr().err
    assert (tmp_path / "report.html").read_text() == "of an earlier run"
    assert not list(tmp_path.glob(".visprism*"))


@pytest.fixture
def signal_handlers(monkeypatch):
    """Signal handlers, which are those of a new process before and of this one after."""
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(sys, "argv", ["visprism", "models"])
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def running(function, monkeypatch):
    """A command line that runs this function."""
    parsed = SimpleNamespace(flags=(), run=lambda _: function())
    monkeypatch.setattr("visprism.cli.parse", lambda _: parsed)
    return main()


@pytest.mark.usefixtures("signal_handlers")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("package", ["numpy.linalg", "numpy", "numpy_like"])
def test_a_signal_ends_a_command_with_its_code_but_no_import_of_numpy(
    monkeypatch, capsys, number, package
):
    stages = []

    def command():
        source = "send(number)\nstages.append('imported')"
        names = {"send": signal.raise_signal, "number": number, "stages": stages}
        exec(source, {"__name__": package, **names})
        for _ in range(500):
            time.sleep(0.01)
        stages.append("ended")

    assert running(command, monkeypatch) == 128 + number
    assert "interrupted; nothing was written" in capsys.readouterr().err
    assert stages == ["imported"] * (package != "numpy_like")


@pytest.mark.usefixtures("signal_handlers")
def test_a_command_that_is_started_with_ctrl_c_ignored_ignores_it(monkeypatch):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert running(lambda: signal.raise_signal(signal.SIGINT), monkeypatch) == 0
