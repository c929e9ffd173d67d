"""The figures of a report, as files and inside the page."""

import re
from dataclasses import replace

from matplotlib.figure import Figure

from visprism.figures.style import tip
from visprism.report import drawings
from visprism.report.drawings import drawings_of
from visprism.report.inline import inline_svg
from visprism.report.sections import SPECTRUM


def test_there_is_a_figure_for_each_analysis_with_a_name_of_its_own(examinations):
    found = list(drawings(examinations))
    assert [drawing.stem for drawing in found] == [
        "overview",
        "anatomy",
        "fourier",
        "high-frequency",
        "high-frequency-log-amplitude-tally",
        "variance",
        "variance-scale-free",
        "variance-tally",
        "attention",
        "attention-nmi",
        "attention-entropy",
        "attention-redundancy",
        "cka",
        "block-structure",
        "receptive-field",
        "receptive-maps",
        "singular-values",
        "singular-values-of-images",
        "effective-rank",
        "effective-rank-of-images",
        "patch-filters",
        "positional-similarity",
        "hessian",
        "hessian-tally",
        "eigenvalues",
        "density",
        "landscape",
        "landscape-surface",
        "landscape-slices",
        "landscape-accuracy",
        "landscape-l2",
        "trajectory",
        "trajectory-polar",
        "reliability",
        "reliability-confidence",
        "risk-coverage",
        "robustness",
        "corruption-errors",
        "stability",
        "lesions",
        "lesions-nll",
        "lesions-together",
        "frequency-noise",
        "fourier-sensitivity",
        "adversarial",
        "shape-bias",
        "build-up",
    ]
    for drawing in found:
        titles = [ax.get_title() for ax in drawing.figure.axes]
        assert titles[:2] == ["shallow", "deep"]


def test_a_model_without_an_analysis_is_left_out_of_its_figure(examinations):
    first, second = examinations
    found = list(drawings_of(SPECTRUM, [first, replace(second, results=())]))
    titles = [ax.get_title() for drawing in found for ax in drawing.figure.axes]
    assert [title for title in titles if title] == ["shallow"]
    assert not list(drawings_of(SPECTRUM, [replace(second, results=())]))


def drawn(gid):
    figure = Figure()
    figure.subplots().plot([0, 1], gid=gid)
    return inline_svg(figure, prefix="p", label='say "hi"')


def test_identifiers_have_the_prefix_and_nothing_is_left_of_a_file():
    svg = drawn("curve")
    assert svg.startswith("<svg ")
    assert set(re.findall(r'\bid="(.{2})', svg)) == {"p-"}
    assert not re.search(r"<!|<\?|<metadata|<style|xmlns|http", svg)


def test_the_label_is_told_to_screen_readers():
    assert 'role="img" aria-label="say &#34;hi&#34;"' in drawn("curve")


def test_a_tip_becomes_a_title_and_stays_text():
    assert '<g class="tip"><title>a &lt;b&gt;</title>' in drawn(tip("a <b>"))
