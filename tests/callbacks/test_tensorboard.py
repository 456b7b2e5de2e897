"""What is written for TensorBoard, read back from the files."""

import csv
import sys
from importlib.util import find_spec

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tensorflow.core.util import event_pb2

from keras_dml import losses, methods
from keras_dml.callbacks.tensorboard import (
    EmbeddingTensorBoard,
    active_pairs,
    export_projector,
)
from keras_dml.data import ClassBalanced, pipeline
from keras_dml.evaluation import embed

needs_tensorboard = pytest.mark.skipif(
    find_spec("tensorboard") is None, reason="needs tensorboard"
)


def test_missing_tensorboard_is_named(images, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ImportError, match=r"keras-dml\[tensorboard\]"):
        EmbeddingTensorBoard(tmp_path, images)


def model_of(backbone, loss_weights=None, **loss):
    model = methods.baseline(
        backbone, embedding_dim=4, loss=losses.ContrastiveLoss(**loss),
        loss_weights=loss_weights,
    )  # fmt: skip
    model.compile(keras.optimizers.Adam(1e-2), run_eagerly=True)
    return model


def train_on(images):
    sampler = ClassBalanced(
        images.labels, classes_per_batch=3, images_per_class=4
    )
    return pipeline(images, sampler, size=16, channels=1)


def read(folder) -> dict[str, dict[int, object]]:
    """The summaries in a folder, by name and step."""
    found: dict[str, dict[int, object]] = {}
    for path in folder.glob("events.*"):
        for record in tf.data.TFRecordDataset(str(path)):
            event = event_pb2.Event.FromString(record.numpy())
            for value in event.summary.value:
                tensor = tf.make_ndarray(value.tensor)
                found.setdefault(value.tag, {})[event.step] = tensor
    return found


@pytest.mark.slow
@needs_tensorboard
def test_a_training_is_logged(tiny_backbone, images, tmp_path) -> None:
    model = model_of(tiny_backbone, loss_weights={"metric": 2.0})
    batch = next(iter(train_on(images)))
    board = EmbeddingTensorBoard(
        tmp_path, images, batch=batch, every=2, projector=10
    )
    history = model.fit(train_on(images), epochs=3, verbose=0,
                        callbacks=[board]).history  # fmt: skip
    found = read(tmp_path)
    for name, column in (("loss", "loss"), ("terms/metric", "metric")):
        logged = [found[name][step] for step in (1, 2, 3)]
        np.testing.assert_allclose(logged, history[column], rtol=1e-6)
    assert [float(found["weights/metric"][s]) for s in (1, 2, 3)] == [2] * 3
    assert found["learning_rate"][3] == pytest.approx(1e-2)
    # Embeddings every second epoch, and after the last one.
    assert set(found["distances/positive"]) == {2, 3}
    assert set(found["retrieval"]) == {2, 3}
    shares = active_pairs(model, *batch)["metric"]
    for kind, share in shares.items():
        name = f"active pairs/metric, {kind}"
        assert found[name][3] == pytest.approx(share)
    x = embed(model, images)
    i, j = np.triu_indices(len(x), k=1)
    same = images.labels[i] == images.labels[j]
    distances = np.linalg.norm(x[i] - x[j], axis=1)
    for kind, mask in (("positive", same), ("negative", ~same)):
        buckets = found[f"distances/{kind}"][3]  # (buckets, 3)
        assert buckets[:, 2].sum() == mask.sum()
        assert buckets[0, 0] == pytest.approx(distances[mask].min(), rel=1e-5)
        assert buckets[-1, 1] == pytest.approx(distances[mask].max(), rel=1e-5)


@pytest.mark.slow
@needs_tensorboard
def test_training_is_the_same_with_and_without(images, tmp_path) -> None:
    from keras_dml import backbones

    weights = []
    for board in (False, True):
        keras.utils.set_random_seed(3)
        backbone = backbones.small_convnet((16, 16, 1), filters=(4, 8))
        model = model_of(backbone, mining="distance_weighted", seed=1)
        batch = next(iter(train_on(images)))
        callbacks = [EmbeddingTensorBoard(tmp_path, images, batch=batch)]
        model.fit(train_on(images), epochs=2, verbose=0,
                  callbacks=callbacks if board else None)  # fmt: skip
        weights.append(model.get_weights())
    for without, with_board in zip(*weights, strict=True):
        np.testing.assert_array_equal(without, with_board)


@pytest.mark.parametrize("margin", [0.5, 3.0])
def test_active_pairs_are_those_within_the_margin(
    margin, tiny_backbone, images
) -> None:
    model = model_of(tiny_backbone, negative_margin=margin)
    x, targets = next(iter(train_on(images)))
    shares = active_pairs(model, x, targets)["metric"]
    embeddings = model(x).numpy()
    labels = targets["label"].numpy()
    close = total = 0
    for i in range(len(labels)):
        for j in range(len(labels)):
            if labels[i] != labels[j]:
                squared = np.square(embeddings[i] - embeddings[j]).sum()
                close += squared < margin
                total += 1
    assert shares["negative"] == pytest.approx(close / total)
    assert shares["positive"] == 1.0


def test_active_pairs_see_the_parts_of_an_ensemble(
    tiny_backbone, images
) -> None:
    model = methods.attentive_grouping(
        tiny_backbone, embedding_dim=4, num_groups=2, loss="multi_similarity"
    )
    x, targets = next(iter(train_on(images)))
    found = active_pairs(model, x, targets["label"], most=7)
    assert found["metric"]["negative"] > 0
    # Diversity compares the groups of an image, not images.
    assert found["diversity"] == {"positive": 0.0, "negative": 0.0}


@pytest.mark.slow
@needs_tensorboard
def test_weights_of_terms_that_are_learned_or_scheduled(
    tiny_backbone, images, tmp_path
) -> None:
    schedules = keras.optimizers.schedules
    schedule = schedules.PiecewiseConstantDecay([4], [2.0, 0.5])
    model = methods.attentive_grouping(
        tiny_backbone, embedding_dim=4, num_groups=2,
        loss="multi_similarity",
        loss_weights={"metric": "learned", "diversity": schedule},
    )  # fmt: skip
    model.compile(keras.optimizers.Adam(1e-2), run_eagerly=True)
    board = EmbeddingTensorBoard(tmp_path, images, projector=0)
    model.fit(train_on(images), epochs=2, verbose=0, callbacks=[board])
    found = read(tmp_path)
    s = float(model.weighting.weights_by_term["metric"])
    assert found["weights/metric"][2] == pytest.approx(np.exp(-s), rel=1e-5)
    # Four steps an epoch.
    assert [float(found["weights/diversity"][e]) for e in (1, 2)] == [2.0, 0.5]


def test_projector_has_embeddings_labels_and_sprite(
    tiny_backbone, images, tmp_path
) -> None:
    model = model_of(tiny_backbone)
    config = export_projector(tmp_path, model, images, most=7, thumbnail=16)
    with (tmp_path / "labels.tsv").open() as file:
        header, *labels = csv.reader(file, delimiter="\t")
    assert header == ["row", "label", "class"]
    rows = [int(row) for row, *_ in labels]
    assert len(set(rows)) == 7
    assert [int(x) for _, x, _ in labels] == images.labels[rows].tolist()
    np.testing.assert_allclose(
        np.loadtxt(tmp_path / "embeddings.tsv"),
        embed(model, images)[rows],
        atol=1e-5,
    )
    with Image.open(tmp_path / "sprite.png") as sprite:
        assert sprite.size == (48, 48)
        pixels = np.asarray(sprite)[..., 0]
    for number, row in enumerate(rows):
        i, j = 16 * (number // 3), 16 * (number % 3)
        tile = pixels[i : i + 16, j : j + 16]
        np.testing.assert_array_equal(tile, images.images[row])
    assert "single_image_dim: 16" in config.read_text()


@needs_tensorboard
@pytest.mark.parametrize(
    "name", ["every", "num_pairs", "num_queries", "projector"]
)
def test_numbers_are_checked(name, images, tmp_path) -> None:
    with pytest.raises(ValueError, match=f"`{name}` of EmbeddingTensorBoard"):
        EmbeddingTensorBoard(tmp_path, images, **{name: -1})


@pytest.mark.slow
@needs_tensorboard
def test_a_log_that_cannot_be_written_ends_no_training(
    tiny_backbone, images, tmp_path, caplog
) -> None:
    folder = tmp_path / "board"
    folder.write_text("a file, where a folder should be made")
    board = EmbeddingTensorBoard(folder, images)
    history = model_of(tiny_backbone).fit(
        train_on(images), epochs=2, verbose=0, callbacks=[board]
    )
    assert len(history.history["loss"]) == 2
    assert "could not log epoch 1" in caplog.text
    assert "could not export to the projector" in caplog.text
