"""Laws of analyses that change pixels: every condition that is asked for, and no other."""

import numpy as np


def test_each_attack_is_made_at_each_strength_in_each_band(measured):
    results = measured(
        "adversarial",
        attacks=("random", "pgd"),
        losses=("cross-entropy",),
        epsilons=(4 / 255, 0.1),
        frequencies=(0.3, 0.6),
        steps=2,
        restarts=2,
    )
    rows = results[0].select(results[0].attack != "worst case")
    conditions = list(zip(rows.attack, rows.epsilon, rows.frequency, strict=True))
    expected = [
        (a, e, f) for a in ("random", "pgd") for e in (4 / 255, 0.1) for f in (0.3, 0.6)
    ]
    assert sorted(conditions) == sorted(expected)
    assert {a: set(rows.restarts[rows.attack == a]) for a in ("random", "pgd")} == {
        "random": {1},
        "pgd": {2},
    }


def test_noise_is_of_the_bands_that_are_asked_for(measured):
    result = measured("frequency-noise", frequencies=(0.2, 0.8), rms=0.05)[0]
    assert result.frequency.tolist() == [0.2, 0.8]
    np.testing.assert_allclose(result.rms, 0.05, rtol=1e-3)


def test_noise_of_the_paper_grows_with_frequency(measured):
    result = measured("frequency-noise", protocol="paper")[0]
    assert result.provenance.protocol == "paper"
    assert result.rms[-1] > 2 * result.rms[0]


def test_the_kernel_reaches_the_measurement(measured):
    linear, rbf = (measured("cka", kernel=kernel)[0] for kernel in ("linear", "rbf"))
    assert (linear.kernel, rbf.kernel) == ("linear", "rbf")
    assert not np.allclose(linear.cka, rbf.cka)
