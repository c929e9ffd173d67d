"""Checks for analyses and measurements; run them on your own.

The laws are written once and hold for built-ins and plug-ins alike::

    def test_obeys_the_laws_of_statistics(tmp_path):
        check_statistic(MyAnalysis(), tmp_path)


    def test_the_model_comes_back_as_it_was():
        check_unchanged(lambda model: my_measurement(model, batches), MyModel().eval())
"""

from visprism.testing.statistics import assert_results_equal, check_statistic
from visprism.testing.unchanged import check_unchanged

__all__ = ["assert_results_equal", "check_statistic", "check_unchanged"]
