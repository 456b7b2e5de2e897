import logging
from dataclasses import replace

import keras
import numpy as np
import pytest

from keras_dml import losses, methods
from keras_dml.callbacks import Recluster, clustering
from keras_dml.callbacks.clustering import Division, feature_model
from keras_dml.data import (
    ClusterSampler,
    ImageSet,
    View,
    pipeline,
    usable_clusters,
)
from keras_dml.embedding import write_shards
from keras_dml.evaluation import kmeans
from tests.conftest import blobs

LEARNERS = 3


def sampler_of(images: ImageSet, **kwargs) -> ClusterSampler:
    return ClusterSampler(
        images.labels, classes_per_batch=2, images_per_class=3,
        num_learners=LEARNERS, steps_per_epoch=4, **kwargs,
    )  # fmt: skip


def fit(backbone, images, sampler, *callbacks, epochs: int):
    model = model_of(backbone, loss="contrastive")
    model.compile("adam", run_eagerly=True)
    batches = pipeline(images, sampler, size=16, channels=1, crop="center")
    history = model.fit(
        batches, epochs=epochs, callbacks=list(callbacks), verbose=0
    )
    return model, history


class Watch(keras.callbacks.Callback):
    """Records the sampler's phase and assignments in every epoch."""

    def __init__(self, sampler: ClusterSampler) -> None:
        super().__init__()
        self.sampler = sampler
        self.phases: list[tuple[str, str]] = []
        self.assignments: list[np.ndarray] = []

    def on_epoch_end(self, epoch, logs=None):
        self.phases.append(tuple(self.sampler.phase))
        self.assignments.append(self.sampler.assignments)


def play(backbone, recluster, watch, epochs: int) -> None:
    """Runs the callbacks of a training's epochs without training."""
    recluster.set_model(model_of(backbone))
    recluster.set_params({"epochs": epochs})
    for epoch in range(epochs):
        recluster.on_epoch_begin(epoch)
        watch.on_epoch_end(epoch)


def model_of(backbone, **kwargs):
    return methods.divide_and_conquer(
        backbone, embedding_dim=9, num_learners=LEARNERS, **kwargs
    )


@pytest.mark.slow
def test_divides_every_t_epochs_while_learners_alternate(
    tiny_backbone, images
) -> None:
    """The pipeline sees a division made at the start of the same epoch."""
    sampler = sampler_of(images)
    planned = []
    plan = sampler.plan

    def spied(epoch):
        planned.append((epoch, sampler.assignments.copy()))
        return plan(epoch)

    sampler.plan = spied
    recluster, watch = Recluster(images, sampler, every=2), Watch(sampler)
    _, history = fit(tiny_backbone, images, sampler, recluster, watch, epochs=5)
    assert [d.epoch for d in recluster.divisions] == [0, 2]
    assert watch.phases == [("sliced", "clusters")] * 4 + [("full", "all")]
    for division in recluster.divisions:
        assert sum(division.sizes) == len(images)
        assert len(division.sizes) == LEARNERS
        assert division.seconds_embedding > 0
        assert division.seconds_clustering > 0
    assert recluster.divisions[0].kept is None
    assert 0 <= recluster.divisions[1].kept <= 1
    seconds = history.history["recluster_seconds"]
    assert [s > 0 for s in seconds] == [i in (0, 2) for i in range(5)]
    assert [epoch for epoch, _ in planned] == list(range(5))
    for (_, seen), current in zip(planned, watch.assignments, strict=True):
        np.testing.assert_array_equal(seen, current)


@pytest.mark.parametrize("space", ["embedding", "features"])
def test_points_are_nearest_to_their_clusters_centroid(
    space, tiny_backbone, images
) -> None:
    """Every point is nearest to the centroid of its own cluster."""
    sampler = sampler_of(images)
    recluster = Recluster(images, sampler, cluster_space=space)
    model = model_of(tiny_backbone)
    recluster.set_model(model)
    recluster.set_params({"epochs": 4})
    recluster.on_epoch_begin(0)
    x = images.images[..., None].astype("float32")
    points = model(x).numpy()
    if space == "features":
        pooled = tiny_backbone(x).numpy().mean(axis=(1, 2))
        points = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
    np.testing.assert_allclose(recluster._points(), points, atol=1e-5)
    # A cluster that cannot train is part of another.
    clusters, assigned = np.unique(sampler.assignments, return_inverse=True)
    assert len(clusters) > 1
    centroids = np.stack(
        [points[assigned == k].mean(axis=0) for k in range(len(clusters))]
    )
    distances = np.square(points[:, None] - centroids).sum(-1)
    nearest = distances.argmin(axis=1)
    assert np.mean(nearest == assigned) > 0.9


@pytest.mark.parametrize("partition", ["random", "labels"])
def test_other_partitions_divide_once(partition, tiny_backbone, images) -> None:
    sampler = sampler_of(images)
    recluster = Recluster(images, sampler, every=1, partition=partition)
    play(tiny_backbone, recluster, Watch(sampler), epochs=3)
    assert [d.epoch for d in recluster.divisions] == [0]
    assert sampler.assignments is not None
    classes = [
        len(np.unique(sampler.assignments[images.labels == label]))
        for label in np.unique(images.labels)
    ]
    assert (max(classes) == 1) == (partition == "labels")


def test_partition_by_a_column_divides_once(tiny_backbone, images) -> None:
    """Table 6: classes grouped by hand, one group per learner."""
    kinds = np.array(["fur", "wood", "glass"])[images.labels % LEARNERS]
    images = images.with_groups({"kind": kinds})
    sampler = sampler_of(images)
    recluster = Recluster(
        images, sampler, every=1, partition="column", partition_column="kind"
    )
    play(tiny_backbone, recluster, Watch(sampler), epochs=3)
    assert [d.epoch for d in recluster.divisions] == [0]
    assert len(set(zip(kinds, sampler.assignments, strict=True))) == LEARNERS


@pytest.mark.parametrize(
    ("column", "partition", "message"),
    [
        ("kind", "kmeans", "for partition 'column', and for no other"),
        (None, "column", "for partition 'column', and for no other"),
        ("kind", "column", "Received: 'kind', and images with age"),
        ("age", "column", "Received: 1 groups and 3 learners"),
    ],
)
def test_unfit_partition_column_raises(
    column, partition, message, images
) -> None:
    images = images.with_groups({"age": np.zeros(len(images), int)})
    with pytest.raises(ValueError, match=message):
        Recluster(
            images,
            sampler_of(images),
            partition=partition,
            partition_column=column,
        )


def test_feature_model_keeps_the_view_of_the_model(
    tiny_backbone, images
) -> None:
    model = methods.divide_and_conquer(
        tiny_backbone, num_learners=2, view=View((16, 16), 1, 20, "longest")
    )
    features = feature_model(model, images)
    assert View.of(features) == View.of(model)
    assert View.of(features) == View((16, 16), 1, 20, "longest")


def test_phases_of_the_released_code_train_as_planned(
    tiny_backbone, images
) -> None:
    phases = [
        (1, "sliced", "clusters"),
        (2, "full", "clusters"),
        (None, "full", "all"),
    ]
    sampler = sampler_of(images)
    watch = Watch(sampler)
    recluster = Recluster(images, sampler, every=1, phases=phases)
    play(tiny_backbone, recluster, watch, epochs=4)
    assert watch.phases == [p[1:] for p in phases] + [("full", "all")]
    assert [d.epoch for d in recluster.divisions] == [0, 1]


def test_unusable_cluster_merges_with_its_neighbor(
    tiny_backbone, caplog
) -> None:
    """One image far from all others makes a cluster of its own."""
    images = blobs(4, 6)
    pixels = images.images.copy()
    pixels[0] = 255 - np.arange(256).reshape(16, 16) // 4
    odd = ImageSet(pixels, images.labels)
    sampler = sampler_of(odd)
    recluster = Recluster(odd, sampler)
    points = np.tile(np.eye(3)[[0, 1]], (12, 1)).astype("f4")
    points[0] = [0, 0, 50]
    recluster._points = lambda: points
    recluster.set_model(keras.Sequential())
    recluster.set_params({"epochs": 1})
    with caplog.at_level(logging.WARNING):
        recluster.on_epoch_begin(0)
    division = recluster.divisions[0]
    assert len(division.merged) == 1
    assert division.sizes[division.merged[0]] == 0
    assert sum(division.sizes) == 24
    assert "two classes with two images" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"every": 0}, "`every` of Recluster.*every=0"),
        ({"partition": "means"}, "`partition` of Recluster.*'means'"),
        ({"cluster_space": "pixels"}, "`cluster_space`.*'pixels'"),
        ({"phases": []}, "`phases` of Recluster"),
    ],
)
def test_unfit_arguments_raise(arguments, message, images) -> None:
    with pytest.raises(ValueError, match=message):
        Recluster(images, sampler_of(images), **arguments)


def test_fewer_images_than_clusters_raise() -> None:
    images = ImageSet(np.zeros((4, 16, 16), "uint8"), [0, 0, 1, 1])
    sampler = ClusterSampler(
        images.labels, classes_per_batch=2, images_per_class=2, num_learners=5
    )
    with pytest.raises(ValueError, match="4 images and 5 clusters"):
        Recluster(images, sampler)


def test_division_prints_as_a_sentence() -> None:
    first = Division(0, (7, 5), None, (), 1.0, 0.25)
    assert str(first) == (
        "Division before epoch 1: clusters of 7, 5 images (1.2 s)."
    )
    assert "; 75% stayed (" in str(replace(first, epoch=2, kept=0.75))


def written(folder, images: ImageSet, **changes):
    points = np.random.default_rng(0).standard_normal((len(images), 5))
    options = {"labels": images.labels, "names": images.names} | changes
    return write_shards(points, folder, rows_per_shard=7, **options)


def test_first_division_uses_given_embeddings(
    tiny_backbone, images, tmp_path, monkeypatch
) -> None:
    embedded = []
    original = clustering.embed_shares
    monkeypatch.setattr(
        clustering,
        "embed_shares",
        lambda *a: embedded.append(1) or original(*a),
    )
    shards = written(tmp_path, images)
    sampler = sampler_of(images)
    watch = Watch(sampler)
    divided = Recluster(images, sampler, every=2, initial=tmp_path)
    play(tiny_backbone, divided, watch, epochs=4)
    assert [d.epoch for d in divided.divisions] == [0, 2]
    assert len(embedded) == 1  # The second division.
    clusters = kmeans(shards, LEARNERS)
    usable = usable_clusters(clusters, images.known_labels, LEARNERS)
    assert usable.all()
    np.testing.assert_array_equal(watch.assignments[0], clusters)


def test_clusters_can_be_found_in_a_sample(
    tiny_backbone, images, tmp_path
) -> None:
    shards = written(tmp_path, images)
    sampler = sampler_of(images)
    watch = Watch(sampler)
    size = len(images) // 2
    divided = Recluster(images, sampler, sample=size, initial=shards, every=9)
    play(tiny_backbone, divided, watch, epochs=1)
    clusters = kmeans(shards, LEARNERS, sample=size)
    np.testing.assert_array_equal(watch.assignments[0], clusters)
    with pytest.raises(ValueError, match="`sample` of Recluster"):
        Recluster(images, sampler, sample=LEARNERS - 1)


def test_initial_embeddings_of_other_images_raise(images, tmp_path) -> None:
    sampler = sampler_of(images)
    fewer = written(tmp_path / "a", images.select(np.arange(10)))
    ids = [f"other/{row}" for row in range(len(images))]
    other_shards = written(tmp_path / "b", images, ids=ids)
    classes = written(tmp_path / "c", images, labels=images.labels[::-1])
    for shards, why in (
        (fewer, f"of 10 examples instead of {len(images)}"),
        (other_shards, "whose row 0 is 'other/0'"),
        (classes, "whose labels are different"),
    ):
        with pytest.raises(ValueError, match=f"`initial` of .* {why}"):
            Recluster(images, sampler, initial=shards)
    with pytest.raises(FileNotFoundError, match="nothing"):
        Recluster(images, sampler, initial=tmp_path / "nothing")


def proxies_of(model: keras.Model) -> list[np.ndarray]:
    """Of the merged embedding, and of each learner."""
    parts = model.objective.part_losses
    return [x.proxies.numpy() for x in (model.objective.loss, *parts)]


@pytest.mark.parametrize("start", ["learned", "class_means"])
def test_merged_loss_starts_when_its_phase_begins(
    start, tiny_backbone, images
) -> None:
    from keras_dml.evaluation import embed

    loss = losses.ProxyNCALoss(6)
    model = model_of(tiny_backbone, loss=loss, merged_start=start)
    recluster = Recluster(images, sampler_of(images))
    recluster.set_model(model)
    recluster.set_params({"epochs": 5})
    initial = proxies_of(model)[0]
    recluster.on_epoch_begin(3)
    np.testing.assert_array_equal(proxies_of(model)[0], initial)
    recluster.on_epoch_begin(4)
    merged, *parts = proxies_of(model)
    if start == "learned":
        unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in parts]
        expected = np.concatenate(unit, axis=1) / np.sqrt(LEARNERS)
    else:
        points = embed(model, images)
        expected = np.stack(
            [points[images.labels == c].mean(axis=0) for c in range(6)]
        )
    np.testing.assert_allclose(merged, expected, atol=1e-5)
    # A training that resumes within the epoch keeps its weights.
    model.objective.loss.proxies.assign(initial)
    again = Recluster(images, sampler_of(images))
    again.set_model(model)
    again.set_params({"epochs": 5})
    again.set_state(recluster.get_state())
    again.on_epoch_begin(4)
    np.testing.assert_array_equal(proxies_of(model)[0], initial)
