from typing import get_args

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import backbones, methods
from keras_dml.methods._abe import Variant, constructed_pairs
from tests.methods.test_contract import batch

every_variant = pytest.mark.parametrize("variant", get_args(Variant))


def model_of(backbone, **kwargs):
    arguments = {
        "embedding_dim": 12, "num_learners": 3, "loss": "contrastive",
        "branch": "relu_0", "attention_end": "relu_1",
    }  # fmt: skip
    return methods.abe(backbone, **{**arguments, **kwargs})


# What is computed.


def test_masks_of_one_leave_the_backbone(tiny_backbone) -> None:
    """Sec. 3.3: "reduced to a conventional multi-layer perceptron"."""
    model = model_of(tiny_backbone)
    for mask in model.head.ensemble.masks:
        mask.kernel.assign(mask.kernel * 0)
        mask.bias.assign(mask.bias + 50)
    x, _ = batch()
    outputs = model.outputs_of(x)
    dense = model.head.ensemble.projections[0]
    pooled = tiny_backbone(x).numpy().mean(axis=(1, 2))
    part = pooled @ dense.kernel.numpy() + dense.bias.numpy()
    part /= np.linalg.norm(part, axis=1, keepdims=True)
    for m in range(3):
        np.testing.assert_allclose(outputs["parts"][:, m], part, atol=1e-5)


@every_variant
def test_embedding_is_the_parts_side_by_side(variant, tiny_backbone) -> None:
    model = model_of(tiny_backbone, variant=variant)
    outputs = model.outputs_of(batch()[0])
    parts = outputs["parts"].numpy()
    np.testing.assert_allclose(np.linalg.norm(parts, axis=2), 1, atol=1e-5)
    side_by_side = np.concatenate([parts[:, m] for m in range(3)], axis=1)
    np.testing.assert_allclose(
        outputs["embedding"], side_by_side / np.sqrt(3), atol=1e-6
    )
    attends = variant in ("abe", "heads_attention")
    assert ("attention" in outputs) == attends
    if attends:
        assert outputs["attention"].shape == (12, 3, 8, 8, 4)


def test_summed_divergence_is_that_of_the_paper(tiny_backbone) -> None:
    """Eq. 9 has ordered pairs and no 1/N: 2B times the default."""
    x, targets = batch()
    mean, total = (
        model_of(tiny_backbone, divergence_reduction=how).objective(
            {"parts": parts_of(12)}, targets
        )["divergence"]
        for how in ("mean", "sum")
    )
    np.testing.assert_allclose(total, 24 * np.asarray(mean), rtol=1e-5)


def parts_of(size: int) -> np.ndarray:
    parts = np.random.default_rng(0).normal(size=(size, 3, 4))
    return parts / np.linalg.norm(parts, axis=2, keepdims=True)


def test_constructed_pairs_relate_halves_of_the_batch() -> None:
    labels = np.array([5, 6, 7, 5, 9, 7])
    assert constructed_pairs(tf.constant(labels)).numpy().tolist() == [
        [-1, -1, -1, 1, -1, -1],
        [-1, -1, -1, -1, 0, -1],
        [-1, -1, -1, -1, -1, 1],
        [1, -1, -1, -1, -1, -1],
        [-1, 0, -1, -1, -1, -1],
        [-1, -1, 1, -1, -1, -1],
    ]


@pytest.mark.parametrize(
    ("variant", "num_learners", "divergence", "expected"),
    [
        ("abe", 3, None, True),
        ("abe", 1, None, False),
        ("heads", 3, None, False),
        ("heads_attention", 3, True, True),
        ("tails", 3, None, True),
        ("tails", 3, False, False),
    ],
)
def test_divergence_depends_on_variant_and_number_of_learners(
    variant, num_learners, divergence, expected, tiny_backbone
) -> None:
    model = model_of(
        tiny_backbone, variant=variant, num_learners=num_learners,
        divergence=divergence,
    )  # fmt: skip
    assert ("divergence" in model.objective.terms) == expected
    if variant != "abe":
        return
    x, targets = batch()
    terms = model.objective(model.outputs_of(x), targets)
    assert tuple(terms) == model.objective.terms


def test_unknown_backbone_needs_named_layers(tiny_backbone) -> None:
    mine = keras.Model(tiny_backbone.input, tiny_backbone.output, name="mine")
    with pytest.raises(ValueError, match="`branch` of abe.*'mine'"):
        methods.abe(mine)
    with pytest.raises(ValueError, match="`attention_end` of abe.*'mine'"):
        methods.abe(mine, branch="relu_0")
    # Without attention there is nothing to end.
    methods.abe(mine, branch="relu_0", variant="heads")


def test_blocks_that_take_a_mask_cannot_be_cut() -> None:
    with pytest.raises(ValueError, match=r"points are \[\].*such as a mask"):
        methods.abe(backbones.small_text_encoder())


def test_odd_batch_of_constructed_pairs_raises(tiny_backbone) -> None:
    model = model_of(tiny_backbone, pairs="constructed")
    x, targets = batch()
    outputs = model.outputs_of(x[:11])
    odd = {k: v[:11] for k, v in targets.items()}
    with pytest.raises(ValueError, match="a batch of 11.*PairSampler"):
        model.objective(outputs, odd)
