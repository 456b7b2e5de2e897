"""Errors of samplers, views and functions of data, one line each."""

import numpy as np
import pytest

from keras_dml import data
from keras_dml.data.view import Augment, View
from tests.data.small_images import LABELS, PIXELS, sampler_of

IMAGES = data.ImageSet(PIXELS, LABELS)
THREE = np.repeat([0, 10, 20], 4)
TWELVE = np.tile(np.arange(12), 10)
CLUSTERS = np.arange(120) % 4
SMALL = View((12, 12), 3, resize=16)
TABLE = np.eye(4, dtype=bool)


def mixed(classes: int = 4) -> data.ImageSet:
    """Three images a class, labels 10, 20, …, mixed."""
    labels = 10 * np.tile(np.arange(1, classes + 1), 3)
    return data.ImageSet([f"{i}.jpg" for i in range(len(labels))], labels)


def balanced(labels=THREE, *classes, **arguments):
    return data.ClassBalanced(labels, *classes, **arguments)


def clustered(assignments=CLUSTERS, labels=TWELVE, classes=4, learners=4):
    cluster_sampler = data.ClusterSampler(
        labels, classes, 2, num_learners=learners
    )
    cluster_sampler.set_assignments(assignments)
    return cluster_sampler


def hard(**arguments):
    return data.HardClassBalanced(TWELVE, classes_per_batch=8, **arguments)


def batches(sampler=None, size=8, **arguments):
    sampler = sampler_of(IMAGES) if sampler is None else sampler
    return data.pipeline(IMAGES, sampler, size, **arguments)


REFUSED = [
    # Samplers.
    (lambda: balanced(classes_per_batch=2, batch_size=8),
     "either `classes_per_batch` or `batch_size`"),
    (lambda: balanced(classes_per_batch=4),
     "images, 3. Received: classes_per_batch=4. Use classes_per_batch=3"),
    (lambda: balanced(batch_size=3), "`batch_size` of ClassBalanced must"),
    (lambda: balanced([1, 2, 3], 2), "several images of a class"),
    (lambda: balanced([1, 2, 3], batch_size=8), "0 of these classes"),
    (lambda: balanced([0.5, 1.5]), "`labels` of ClassBalanced must be"),
    (lambda: data.SurrogateSampler(TWELVE, 3).targets(0),
     r"SurrogateLabels\(images, sampler\)"),
    (lambda: clustered(CLUSTERS[:5]), r"shape \(5,\), 120 images"),
    (lambda: clustered(CLUSTERS.astype(float)), "dtype float64"),
    (lambda: clustered(CLUSTERS - 1), "-1 to 2"),
    (lambda: clustered(CLUSTERS + 1), "1 to 4, num_learners=4"),
    (lambda: clustered([0, 0, 1, 1], [0, 0, 1, 1], 2, 2), "Merge clusters"),
    (lambda: clustered().set_phase("half", "all"), "`loss` of ClusterSampler"),
    (lambda: clustered().set_phase("full", "cluster"),
     "`source` of ClusterSampler"),
    (lambda: hard().plan(0), "Add the callback HardClasses"),
    (lambda: hard().set_neighbors(np.zeros((3, 2), int)),
     "one row for each of the 12 classes"),
    (lambda: hard().set_neighbors(12 * np.eye(12, 1, dtype=int)),
     "0 to 11. Received: 0 to 12"),
    (lambda: hard().set_embeddings(np.ones((3, 2))), "one row per image"),
    (lambda: hard().set_embeddings(np.full((120, 2), np.nan)), "be finite"),
    (lambda: hard(num_neighbors=-1), "`num_neighbors`.*=-1"),
    (lambda: data.MultiLabelBalanced(np.arange(4), 2, 2),
     "several per example.*ClassBalanced"),
    (lambda: data.MultiLabelBalanced(TABLE.astype(int), 2, 2),
     r"labels.astype\(bool\)"),
    (lambda: data.MultiLabelBalanced(TABLE, 2, 2),
     "examples, 0. Received: classes_per_batch=2"),
    (lambda: data.PairSampler([0, 0, 1, 1], 3), "must be even"),
    (lambda: data.PairSampler([0, 0, 1, 1], 6),
     "4 images in such classes, num_pairs=6"),
    (lambda: data.PairSampler([0, 0, 0, 0], 2), "1 classes"),
    (lambda: data.PairSampler([0, 1, 2, 3], 2), "0 images in such classes"),
    (lambda: data.PairSampler([0, 0, 1, 1], 0), "`num_pairs` of PairSampler"),
    # Views.
    (lambda: View((0, 4), 3), "`size` of View"),
    (lambda: View((4,), 3), "`size` of View"),
    (lambda: View((4, 4), 2), "`channels` of View"),
    (lambda: View((4, 6), 3, 5), "`resize` of View .* resize=6 or more"),
    (lambda: View((4, 6), 3, 0), "`resize` of View"),
    (lambda: View((4, 6), 3, 5, "longest"), "`resize` of View"),
    (lambda: View((4, 6), 3, 8, "pad"), "`resize_mode` of View must be one of"),
    (lambda: View((4, 4), 3).apply(np.zeros((4, 4, 2), np.uint8)),
     "1 or 3 channels"),
    (lambda: Augment(SMALL, scale=(0.5, 1.5)), "`scale` of Augment"),
    (lambda: Augment(SMALL, scale=(0.0, 1.0)), "`scale` of Augment"),
    (lambda: Augment(SMALL, ratio=(2.0, 1.0)), "`ratio` of Augment"),
    (lambda: Augment(SMALL, pad=-1), "`pad` of Augment"),
    (lambda: Augment(SMALL, pad=16), "`pad` of Augment"),
    (lambda: Augment(SMALL, "center", pad=2), "`pad` of Augment requires"),
    # Without resizing there is no resize mode.
    *(
        (lambda mode=mode: Augment(
            View((12, 10), 3, resize_mode=mode), "random_resized"),
         "`resize_mode` .* resize=12")
        for mode in ("longest", "squash")
    ),
    # Batches, sheets and tokens.
    (lambda: batches(sampler_of(IMAGES.select(range(20)))),
     "made from the labels of `examples`"),
    (lambda: batches(num_views=3), "`num_views` of pipeline"),
    (lambda: batches(LABELS), "`sampler` of pipeline .*ndarray"),
    (lambda: batches(seed=0.5), "`seed` of pipeline .*0.5"),
    (lambda: batches(size=0), "`size` of View"),
    (lambda: batches(size=(4, 4, 3)), "`size` of View"),
    (lambda: data.eval_batches(IMAGES, batch_size=0),
     "`batch_size` of eval_batches"),
    (lambda: data.preview(IMAGES, rows=0), "rows=0"),
    (lambda: data.preview(IMAGES.select([])),
     "`images` of preview must not be empty"),
    (lambda: data.byte_tokens("one", 4), r"sequence of strings.*\['one'\]"),
    (lambda: data.byte_tokens(["a", ""], 4),
     "non-empty strings. Received: '' at row 1"),
    (lambda: data.byte_tokens(["a", 3], 4),
     "must be non-empty strings.*Received: 3 at row 1"),
    (lambda: data.byte_tokens(["a"], 0), "`length` of byte_tokens"),
    # Sets and their splits.
    (lambda: data.ImageSet(["a", "b"], [0, 1, 2]), "3 labels, 2 images"),
    (lambda: data.ImageSet(["a", "b"], [0, 1], ids=["x"]), "1 ids, 2 images"),
    (lambda: data.ImageSet(["a", "b"], [0, 2], names=["x", "y"]),
     "2 names, labels from 0 to 2"),
    *(
        (lambda share=share: data.split_classes(mixed(), share),
         "`train_classes` of split_classes")
        for share in (0, 4, -1, 0.0, 1.0, 0.01, True)
    ),
    (lambda: data.split_classes(mixed(1)), r"=1. Use .*two"),
    *(
        (lambda share=share: data.holdout_classes(mixed(3), share),
         "`fraction` of holdout_classes")
        for share in (1.0, -0.1, 0.9)
    ),
    (lambda: data.holdout_classes(mixed(), 0.2, 0, np.arange(12) % 5),
     "class 10 in"),
    (lambda: data.holdout_classes(mixed(), 0.2, 0, ["one"] * 12),
     "at least two groups"),
    (lambda: data.holdout_classes(mixed(), 0.2, 0, ["one"] * 11),
     "one item per image"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_unfit_arguments_raise(make, message) -> None:
    with pytest.raises(ValueError, match=message):
        make()
