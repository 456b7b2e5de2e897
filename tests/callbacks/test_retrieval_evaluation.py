import keras
import numpy as np
import pytest

from keras_dml import methods
from keras_dml.callbacks import RetrievalEvaluation
from keras_dml.data import ArraySet, ClassBalanced, pipeline
from keras_dml.evaluation import Protocol, evaluate
from tests.conftest import blobs


def fit(backbone, *callbacks, epochs: int):
    images = blobs(4, 6)
    model = methods.baseline(backbone, embedding_dim=8, loss="contrastive")
    model.compile(keras.optimizers.Adam(1e-2))
    sampler = ClassBalanced(
        images.labels, classes_per_batch=3, images_per_class=3
    )
    batches = pipeline(images, sampler, size=16, channels=1, crop="center")
    history = model.fit(
        batches, epochs=epochs, callbacks=list(callbacks), verbose=0
    )
    return model, history.history


def test_logs_what_evaluate_measures(tiny_backbone) -> None:
    held_out = blobs(5, 6, seed=9)
    callback = RetrievalEvaluation(held_out)
    model, history = fit(tiny_backbone, callback, epochs=2)
    results = evaluate(model, held_out, metrics=("recall@1", "map@r"))
    assert len(history["val_recall@1"]) == 2
    assert history["val_recall@1"][-1] == results["recall@1"]
    assert history["val_map@r"][-1] == results["map@r"]
    assert callback.seconds > 0


@pytest.mark.slow
def test_other_callbacks_can_use_it(tiny_backbone, tmp_path) -> None:
    path = tmp_path / "best.keras"
    checkpoint = keras.callbacks.ModelCheckpoint(
        str(path), monitor="val_map@r", mode="max", save_best_only=True
    )
    stop = keras.callbacks.EarlyStopping(
        monitor="val_recall@1", mode="max", patience=1, min_delta=10
    )
    evaluation = RetrievalEvaluation(blobs(5, 6, seed=9))
    _, history = fit(tiny_backbone, evaluation, checkpoint, stop, epochs=5)
    assert len(history["loss"]) == 2
    assert path.exists()


@pytest.mark.slow
def test_measures_every_so_often_and_at_the_end(tiny_backbone) -> None:
    class Counted(RetrievalEvaluation):
        count = 0

        def _measure(self) -> None:
            self.count += 1
            super()._measure()

    callback = Counted(blobs(5, 6, seed=9), every=3)
    _, history = fit(tiny_backbone, callback, epochs=5)
    # Epochs 1 (so that the logs have a value), 3 and 5.
    assert callback.count == 3
    assert len(history["val_map@r"]) == 5


@pytest.mark.slow
def test_training_metrics_are_left_alone(tiny_backbone) -> None:
    _, with_it = fit(
        tiny_backbone, RetrievalEvaluation(blobs(5, 6, seed=9)), epochs=1
    )
    assert with_it["loss"][0] > 0


def test_every_must_be_positive() -> None:
    with pytest.raises(ValueError, match="`every`.*every=0"):
        RetrievalEvaluation(blobs(), every=0)


@pytest.mark.slow
def test_protocols_galleries_and_distances(tiny_backbone) -> None:
    held_out, gallery = blobs(5, 6, seed=9), blobs(5, 4, seed=9)
    cameras = np.arange(30) % 2
    asked = [
        {"protocol": "official", "distance": "euclidean"},
        {"gallery": gallery, "exclude": (cameras, np.arange(20) % 2)},
        {"protocol": Protocol(np.arange(10)), "exclude": cameras},
        {"labels": {"a": held_out.labels, "b": held_out.labels // 2}},
        {"prefixes": (4, 8)},
    ]
    callbacks = [
        RetrievalEvaluation(held_out, prefix=f"{i}_", **options)
        for i, options in enumerate(asked)
    ]
    model, history = fit(tiny_backbone, *callbacks, epochs=1)
    for i, options in enumerate(asked):
        results = evaluate(
            model, held_out, metrics=("recall@1", "map@r"), **options
        )
        logged = {k: v[0] for k, v in history.items() if k[:2] == f"{i}_"}
        assert logged == {f"{i}_{k}": v for k, v in results.items()}


@pytest.mark.slow
def test_metrics_are_functions_and_stand_for_several(tiny_backbone) -> None:
    def hits(ranks):
        return ranks.sum(ranks.ranks <= 2)

    callback = RetrievalEvaluation(
        blobs(5, 6, seed=9), metrics=[hits, "recall@k", "macro/map@r"]
    )
    _, history = fit(tiny_backbone, callback, epochs=1)
    assert {"val_hits", "val_recall@1", "val_recall@8", "val_macro/map@r"} <= (
        set(history)
    )


@pytest.mark.parametrize(
    "images, options, message",
    [
        (blobs(5, 1), {}, "no such pair"),
        (blobs(5, 2), {"exclude": np.arange(10) // 2}, "no such pair"),
        (blobs(5, 1), {"protocol": "official"}, "`queries` of Protocol"),
        (blobs(), {"protocol": Protocol(np.array([48]))}, "rows of the 48"),
        (blobs(), {"protocol": "offical"}, "`protocol` of Retrieval"),
        (blobs(), {"protocol": "official", "gallery": blobs()}, "Omit one"),
        (blobs(), {"gallery": "photographs"}, "`gallery` of Retrieval"),
        (blobs(), {"gallery": np.eye(4)}, "`gallery_labels` of Retrieval"),
        ("photographs", {}, "`images` of Retrieval"),
        (blobs(), {"distance": "l2"}, "`distance` of Retrieval"),
        (blobs(), {"metrics": ("recal@1",)}, "Did you mean 'recall@1'"),
        (blobs(), {"exclude": np.arange(3)}, "`exclude` of Retrieval"),
        (blobs(), {"labels": np.arange(3)}, "`labels` of Retrieval"),
        (blobs(), {"prefixes": (0,)}, "`prefixes` of Retrieval"),
        (ArraySet(np.eye(4)), {}, "`images.labels` of Retrieval"),
    ],
)
def test_what_would_fail_after_the_first_epoch(
    images, options, message
) -> None:
    with pytest.raises(ValueError, match=message):
        RetrievalEvaluation(images, **options)


def test_prefixes_are_compared_with_the_model_before_it_trains() -> None:
    callback = RetrievalEvaluation(blobs(), prefixes=(2, 40))
    inputs = keras.Input((5,))
    callback.set_model(keras.Model(inputs, inputs))
    with pytest.raises(ValueError, match="at most the dimension .*, 5"):
        callback.on_train_begin()
