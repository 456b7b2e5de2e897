"""NT-Xent and N-pair against loops."""

import math

import numpy as np

from keras_dml.losses import NPairLoss
from tests.losses.oracle import (
    batch,
    value_and_gradient,
)


def test_n_pair_batch_of_the_paper():
    # N anchors, and as references their N positives: cross entropy of
    # the N×N inner products with the diagonal as target.
    count = 5
    x, refs = batch([0] * count), batch([0] * count, seed=1)
    logits = x @ refs.T
    expected = [
        math.log(sum(math.exp(v) for v in row)) - row[i]
        for i, row in enumerate(logits)
    ]
    values, _ = value_and_gradient(
        NPairLoss(),
        np.arange(count),
        x.astype("float32"),
        ref_labels=np.arange(count),
        ref_embeddings=refs.astype("float32"),
    )
    np.testing.assert_allclose(values, expected, rtol=1e-5)
