"""Rules for the texts of a checkout; `.ci/lint` runs them.

Each file is a topic with a function `check`, which takes a `Tree` and yields
what it finds. `tests/test_lint.py` plants a fault for each.
"""
