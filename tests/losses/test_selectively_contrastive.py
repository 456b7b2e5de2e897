"""Selectively contrastive triplets by the released code, in loops."""

import math

import numpy as np
import pytest

from keras_dml.losses import SelectivelyContrastiveLoss
from tests.losses.oracle import LABELS, check_against_loop, sets, unit


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("cutoff", [None, 0.2])
def test_closest_positive_and_closest_negative(labels, cutoff):
    kinds = set()

    def loop(labels, x):
        s, terms = unit(x) @ unit(x).T, []
        for a, same, other in sets(labels):
            if same and other:
                p, n = max(s[a, same]), max(s[a, other])
                is_hard = n > p or (cutoff is not None and n > cutoff)
                kinds.add(is_hard)
                easy = -p / 0.1 + math.log(math.exp(10 * p) + math.exp(10 * n))
                terms.append(n if is_hard else easy)
        return np.mean(terms)

    check_against_loop(SelectivelyContrastiveLoss(cutoff=cutoff), loop, labels)
    assert True in kinds
