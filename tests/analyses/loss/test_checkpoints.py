"""Laws of analyses that read checkpoints, and of landscapes along Hessian eigenvectors."""

import numpy as np
import pytest

from visprism import Entry, Study
from visprism.report.drawings import drawings
from visprism.results import HessianSpectrum, LossSurface, Projection
from visprism.study.report_content import content_of

HESSIAN = {"mini_batch": 8, "k": 1}


def of_type(results, kind):
    (result,) = [r for r in results if isinstance(r, kind)]
    return result


def spectrum(measured, **options):
    return of_type(measured("hessian", **HESSIAN | options), HessianSpectrum)


def at(surface, a, b=0.0):
    """NLL at a point of the grid."""
    (nll,) = surface.nll[np.isclose(surface.a, a) & np.isclose(surface.b, b)]
    return float(nll)


def test_along_the_sharpest_directions_the_loss_bends_as_the_hessian_says(measured):
    reach = 0.01
    results = measured(
        "landscape", plane="hessian", points=3, reach=reach, ring_planes=1, angles=4
    )
    surface = of_type(results, LossSurface)
    sharpest = spectrum(measured, mini_batch=16, k=2, which="LA")
    expected = sharpest.value[sharpest.rank > 0]
    for (a, b), eigenvalue in zip(((reach, 0), (0, reach)), expected, strict=True):
        bend = (at(surface, a, b) + at(surface, -a, -b) - 2 * at(surface, 0)) / reach**2
        assert bend == pytest.approx(eigenvalue, rel=0.1)


@pytest.mark.parametrize(("number", "share"), [(2, 2), (3, 2.5)])
def test_the_plane_of_checkpoints_goes_through_two_and_holds_most_of_three(
    measured, checkpoint, number, share
):
    files = tuple(checkpoint(seed) for seed in range(1, number + 1))
    results = measured("landscape", checkpoints=files, points=3, ring_planes=1, angles=4)
    surface, path = of_type(results, LossSurface), of_type(results, Projection)
    assert surface.plane == "given"
    np.testing.assert_allclose((path.a[number:], path.b[number:]), [[0], [0]], atol=1e-6)
    # Four draws of random weights are corners of a body with nearly equal edges, of whose
    # three dimensions, seen from one corner, the plane holds those with the most variance.
    allowed = 1e-5 if number == 2 else 0.3
    assert path.share[:number].sum() == pytest.approx(share, abs=allowed)
    study = Study(("net",), (Entry(("net",), "landscape", results),))
    figures = {drawing.stem: drawing for drawing in drawings(content_of(study))}
    for stem in ("landscape-2", "landscape-2-accuracy"):
        lines = [line.get_xydata().tolist() for line in figures[stem].draw().axes[0].lines]
        assert np.stack([path.a, path.b], axis=1).tolist() in lines


def test_a_landscape_of_augmented_images_is_another(measured):
    options = {"points": 3, "reach": 0.1, "ring_planes": 1, "angles": 4}
    clean, augmented = (
        of_type(measured("landscape", train_images=name, **options), LossSurface)
        for name in ("clean", "augmented")
    )
    batches = spectrum(measured, train_images="augmented")  # two of 8 images
    expected = batches.nll[batches.rank == 1].mean()
    assert at(augmented, 0) == pytest.approx(expected, rel=1e-5)
    assert not np.isclose(clean.nll, augmented.nll, rtol=1e-6).any()


def test_checkpoints_with_equal_file_names_are_told_apart_by_their_folders(
    measured, checkpoint
):
    files = checkpoint(1, "a/best.safetensors"), checkpoint(2, "b/best.safetensors")
    paths, soup = measured("mode-connectivity", checkpoints=files, points=3)
    assert list(dict.fromkeys(paths.checkpoint.tolist())) == list(map(str, files))
    assert len(soup) == 4
