"""The claims of Park & Kim (2022) as experiments: trained networks, rules and verdicts.

    python -m experiments.claims                                    # the rows, their hypotheses
    python -m experiments.claims run --row C6 --out claims          # train, measure, decide
    python -m experiments.claims run --row C6 --model my.py:build   # on your own architecture
    python -m experiments.claims report --out claims                # the verdicts as a page

A row is one declaration in `hypotheses.py`; what its quantities need is in `measure.py`.
"""
