"""The page of what is stored: after an interruption, and by `visprism report`."""

from visprism import Study
from visprism.cli import main
from visprism.study.examination import Examination

STUDY = ["examine", "resnet20.shapes", "vit_pico_patch4_32.shapes", "--data", "shapes"]
OPTIONS = ["--limit", "40", "--analyses", "variance,calibration", "--quiet"]


def test_an_interrupted_study_has_the_page_of_its_results(tmp_path, monkeypatch):
    keep = Examination._keep

    def interrupted(self, *args):
        keep(self, *args)
        if len(self.entries) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Examination, "_keep", interrupted)
        assert main([*STUDY, *OPTIONS, "--out", str(tmp_path)]) == 130
    assert len(Study.load(tmp_path).entries) == 3
    page = (tmp_path / "report.html").read_text()
    assert "resnet20.shapes" in page
    assert "<h2 id=" in page


def test_report_writes_the_page_of_a_folder_again(tmp_path, capsys):
    assert main([STUDY[0], STUDY[1], *STUDY[3:], *OPTIONS, "--out", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    (tmp_path / "report.html").unlink()
    capsys.readouterr()
    assert main(["report", str(tmp_path)]) == 0
    assert "report.html" in capsys.readouterr().out
    assert (tmp_path / "report.html").read_text() == page
    assert main(["report", str(tmp_path / "none")]) == 2
