"""Laws of the commands that measure: what they write, print and resume."""

import json
import re
import signal
import subprocess
import sys
import time

import pytest

import visprism as vp
from visprism import Result, Study
from visprism.cli import main

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


def written(folder):
    """When each result was written, in nanoseconds."""
    return {p.name: p.stat().st_mtime_ns for p in folder.glob("results/*.npz")}


def test_a_command_writes_a_page_tables_and_figures_and_nothing_else(studied):
    assert files_of(studied) == {
        "report.html", "study.json", "study.md", "study.yaml", "results.json",
        *(f"results/{m}-sparsity-sparsity.{kind}" for m in (FIRST, SECOND) for kind in KINDS),
        "figures/sparsity.svg", "figures/.visprism",
    }  # fmt: skip


def test_in_another_folder_it_gives_the_same_numbers_and_figures_in_the_formats_named(
    studied, study_command, tmp_path
):
    assert main([*study_command, str(tmp_path), "--formats", "svg,pdf"]) == 0
    assert {p.suffix for p in (tmp_path / "figures").glob("[!.]*")} == {".svg", ".pdf"}
    for name in (FIRST, SECOND):
        assert sparsity_of(tmp_path, name) == sparsity_of(studied, name)
    command = f"visprism sparsity {FIRST} {SECOND} --data shapes"
    assert Study.load(studied)[FIRST]["sparsity"].provenance.command.startswith(command)
    first, second = (f / "figures" / "sparsity.svg" for f in (tmp_path, studied))
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.usefixtures("no_page")
def test_fresh_measures_again(studied, study_command):
    before = written(studied)
    assert main([*study_command, str(studied), "--fresh"]) == 0
    assert all(time > before[name] for name, time in written(studied).items())


@pytest.mark.usefixtures("no_page")
def test_an_option_reaches_the_measurement(tmp_path):
    where = [FIRST, "--data", "shapes", "--limit", "4", "--out"]
    assert main(["sparsity", *where, f"{tmp_path}/a", "--threshold", "1/2"]) == 0
    words = ["--analyses", "sparsity", "--set", "sparsity.threshold=0.5"]
    assert main(["examine", *where, f"{tmp_path}/b", *words]) == 0
    options = {"sparsity": {"threshold": 0.5}}
    study = vp.examine(FIRST, "shapes", analyses="sparsity", options=options, limit=4)
    for name in "ab":
        assert sparsity_of(tmp_path / name) == study[FIRST]["sparsity"]


@pytest.mark.usefixtures("no_page")
def test_labels_name_the_models_and_a_seed_gives_other_random_weights(tmp_path):
    words = ["sparsity", "a=resnet20", "resnet20", "--data", "shapes", "--limit", "4"]
    for number, flags in enumerate(([], ["--labels", "b,c", "--seed", "1"])):
        assert main([*words, *flags, "--out", f"{tmp_path}/{number}"]) == 0
    first, second = (Study.load(tmp_path / number) for number in "01")
    assert (first.models, second.models) == (("a", "resnet20"), ("b", "c"))
    assert first["a"]["sparsity"] != second["b"]["sparsity"]


def test_the_same_command_measures_nothing_and_says_it_again(studied, study_command, capsys):
    """The plan on stderr, the table on stdout."""
    before = written(studied)
    assert main([*study_command, str(studied)]) == 0
    assert written(studied) == before
    printed = capsys.readouterr()
    assert "Plan:" in printed.err
    assert "32x32" in printed.err  # how the images are prepared
    assert "How sparse are feature maps? (Sparsity, mean over blocks; 12 images)" in printed.out
    assert f"Page: {studied / 'report.html'} " in printed.out


def test_json_is_what_results_json_holds_and_quiet_is_the_path_of_the_page(
    studied, study_command, capsys
):
    assert main([*study_command, str(studied), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((studied / "results.json").read_text("utf-8"))
    (answers,) = (
        row["answers"]
        for row in printed["questions"]
        if row["question"] == "How sparse are feature maps?"
    )
    assert answers[FIRST]["value"] == pytest.approx(sparsity_of(studied).sparsity.mean())
    assert main([*study_command, str(studied), "--quiet"]) == 0
    assert tuple(capsys.readouterr()) == (f"{studied / 'report.html'}\n", "")


def fail_on(monkeypatch, model, error):
    """Let the analysis raise on one model."""
    analysis = vp.ANALYSES["sparsity"]
    measure = analysis.measure

    def failing(self, subject, run):
        if subject.name == model:
            raise error
        return measure(self, subject, run)

    monkeypatch.setattr(analysis, "measure", failing)


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
        f"visprism: interrupted; 1 result is stored in {tmp_path}, see visprism view "
        f"{tmp_path}; the same command resumes\n"
    )
    assert (tmp_path / "report.html").exists()  # of what is complete
    first = written(tmp_path)
    assert main(command) == 0
    assert first.items() < written(tmp_path).items()
    for name in (FIRST, SECOND):
        assert sparsity_of(tmp_path, name) == sparsity_of(studied, name)


def test_a_signal_ends_a_command_in_one_sentence_with_its_code(tmp_path):
    words = ["variance", FIRST, "--data", "shapes", "--limit", "1000", "--out"]
    codes = {signal.SIGINT: 130, signal.SIGTERM: 143}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "visprism", *words, tmp_path / str(code)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for code in codes.values()
    ]
    time.sleep(2)  # while torch is imported
    for number, process in zip(codes, processes, strict=True):
        process.send_signal(number)
    for code, process in zip(codes.values(), processes, strict=True):
        _, said = process.communicate(timeout=100)
        assert process.returncode == code
        assert said.splitlines()[-1].startswith("visprism: interrupted; ")
        assert not said.endswith("interrupted; \n")
        assert "Traceback" not in said
