"""Operation counts: by hand, as published, and in the docs."""

import argparse
import csv
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import backbones, methods
from tests.benchmarks import methods as benchmark
from tests.benchmarks import operations

DOCS = Path(__file__).parents[2] / "docs" / "methods" / "measured.csv"
SETTING = argparse.Namespace(
    backbone="small_convnet", size=48, frozen=False, jit=False, batch=128
)


def test_operations_match_a_count_by_hand(tiny_backbone) -> None:
    """16 × 16 pixels: a convolution of 4 filters, pooled, and one of 8."""
    convolutions = [16 * 16 * 4 * 9 * 1, 8 * 8 * 8 * 9 * 4]
    dense = 8 * 5
    model = methods.baseline(tiny_backbone, embedding_dim=5, loss="contrastive")
    assert operations.to_embed(model) == sum(convolutions) + dense
    model.compile(keras.optimizers.SGD(0.1))
    images = tf.zeros((6, 16, 16, 1))
    labels = {"label": tf.constant([0, 0, 1, 1, 2, 2], "int64")}
    # Backward each is two products, of the first one: no gradient of images.
    step = 3 * sum(convolutions) - convolutions[0] + 3 * dense
    # Similarities of the batch, and their gradient, written out as one product.
    pairs = 2 * 6 * 6 * 5
    assert operations.of_a_step(model, (images, labels)) == 6 * step + pairs


@pytest.mark.slow
def test_flops_of_abe_match_the_paper() -> None:
    """Tables 1 and 8 of ABE, in 10⁹; ABE-4 is 2.8 times one head.

    They grow by the same number with every learner, as the dense layers of
    all learners together are of one size.
    """
    backbone = backbones.googlenet((224, 224, 3))

    def counted(variant: str, learners: int) -> float:
        model = methods.abe(
            backbone, variant=variant, num_learners=learners, embedding_dim=512
        )
        return operations.to_embed(model) / 1e9

    one = methods.baseline(backbone, embedding_dim=512)
    first = operations.to_embed(one) / 1e9
    abe = counted("abe", 2)
    more = {
        "heads": counted("heads", 2) - first,
        "tails": counted("tails", 2) - first,
        "abe": abe - counted("abe", 1),
    }
    for variant, at, flops, learners, printed in (
        ("heads", 1, first, 1, "1.58"),
        ("heads", 1, first, 2, "2.25"),
        ("heads", 1, first, 4, "3.60"),
        ("heads", 1, first, 8, "6.28"),
        ("abe", 2, abe, 2, "2.96"),
        ("abe", 2, abe, 4, "4.46"),
        ("abe", 2, abe, 8, "7.46"),
        ("tails", 1, first, 8, "12.7"),
    ):
        total = flops + (learners - at) * more[variant]
        digits = len(printed.split(".")[1])
        assert f"{total:.{digits}f}" == printed, (variant, learners)
    # Printed as that of ABE-8.
    assert counted("heads_attention", 2) == pytest.approx(abe, rel=1e-3)


@pytest.mark.slow
@pytest.mark.pages
@pytest.mark.parametrize("name", ["abe", "baseline", "diva at half size"])
def test_docs_print_the_counted_operations(name) -> None:
    with DOCS.open(encoding="utf-8") as file:
        rows = csv.DictReader(file)
        printed = [
            row["mean"]
            for row in rows
            if (row["experiment"], row["row"]) == ("operations", name)
        ]
    model = benchmark.model_of(name, SETTING)
    data = benchmark.batch_of(model, SETTING.batch)
    step = operations.of_a_step(model, data) / SETTING.batch
    counted = np.array([operations.to_embed(model), step]) / 1e6
    assert [f"{x:.2f}" for x in counted] == printed
