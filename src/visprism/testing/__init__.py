"""Checks for probes and measurements; run them on your own.

The laws are written once and hold for built-ins and plug-ins alike::

    def test_obeys_the_laws_of_probes(tmp_path):
        check_probe(MyProbe, tmp_path)


    def test_the_model_comes_back_as_it_was():
        check_unchanged(lambda model: my_measurement(model, batches), MyModel().eval())
"""

from visprism.testing.probes import assert_results_equal, check_probe
from visprism.testing.unchanged import check_unchanged

__all__ = ["assert_results_equal", "check_probe", "check_unchanged"]
