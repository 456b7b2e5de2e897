"""Examples of losses run; `.ci/lint` checks what else docstrings say."""

import inspect
import re

import keras
import numpy as np

from keras_dml import losses

EXAMPLE = re.compile(r"^Example:\n((?:    .*\n|\n)+)", re.M)
MAKE_A_MODEL = ("CrossBatchMemory", "MatryoshkaLoss")


LOSSES = [
    entry.value
    for registry in (losses.LOSSES, losses.COMPOSITES)
    for entry in registry.values()
]


def test_examples_run() -> None:
    labels = np.arange(16) % 4
    names = {
        **vars(losses),
        "keras": keras,
        "np": np,
        "labels": labels,
        "label_sets": np.eye(4, dtype=bool)[labels],
        "embeddings": np.random.default_rng(0).normal(size=(16, 8)),
    }
    assert len(LOSSES) > 40
    for loss in LOSSES:
        if loss.__name__ in MAKE_A_MODEL:
            continue
        (example,) = EXAMPLE.findall(inspect.getdoc(loss) + "\n")
        if ">>>" in example:  # tests/test_examples.py runs it.
            continue
        code = inspect.cleandoc(example).strip("`").removeprefix("python\n")
        for line in code.strip().splitlines():
            result = eval(line, dict(names))  # noqa: S307
            if not isinstance(result, losses.MetricLoss):
                assert np.isfinite(result).all(), loss
