"""What docs/anatomy.md shows runs as it stands there, and prints what it says."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "anatomy.md").read_text(encoding="utf-8")
FIRST, SECOND = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_page_runs_and_prints_what_it_says(capsys):
    names = {}
    exec(compile(FIRST, "anatomy.md", "exec"), names)
    below = PAGE.partition(FIRST)[2].partition("##")[0]
    printed = re.findall(r"^    (\S.*)$", below, flags=re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == printed
    exec(compile(SECOND, "anatomy.md", "exec"), names)
    first, macs = capsys.readouterr().out.splitlines()
    assert f"# {first}" in SECOND
    assert int(macs) > 0
    assert names["without"].shape == names["halved"].shape == (4, 1000)
