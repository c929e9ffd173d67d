"""The claims of Park & Kim (2022) as experiments: trained networks, rules and verdicts."""
