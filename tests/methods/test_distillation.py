"""Distillation: teachers, losses, and what is saved of a teacher."""

import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import backbones, losses, methods
from keras_dml.data import ClassBalanced, pipeline
from keras_dml.export import export_model
from keras_dml.losses.distillation import RELATIONS
from tests.conftest import blobs
from tests.methods.test_contract import batch

IMAGES = blobs()
PIXELS = IMAGES.images[..., None].astype("float32")


def network(size=16, channels=1, filters=(4, 8)) -> keras.Model:
    return backbones.small_convnet((size, size, channels), filters=filters)


def teacher_of(**kwargs) -> keras.Model:
    keras.utils.set_random_seed(5)
    return methods.baseline(network(filters=(6, 9), **kwargs), embedding_dim=7)


def student_of(teacher=None, **kwargs) -> keras.Model:
    keras.utils.set_random_seed(6)
    return methods.distillation(
        network(), teacher=teacher, **{"embedding_dim": 5, **kwargs}
    )


def teacher_sees(student: keras.Model, images=PIXELS) -> np.ndarray:
    return student.objective.completed(images, {})["teacher"].numpy()


@pytest.mark.parametrize("relation", ["similarity", ("distance", "angle")])
def test_terms_match_the_loss_and_the_relations(relation) -> None:
    model = student_of(relation=relation, temperature=0.3)
    names = (relation,) if isinstance(relation, str) else relation
    assert model.objective.terms == ("metric", *names)
    x, targets = batch()
    embedding = model(x)
    taught = np.random.default_rng(0).normal(size=(12, 6)).astype("float32")
    terms = model.objective(
        {"embedding": embedding}, {**targets, "teacher": taught}
    )
    loss = losses.get("multi_similarity")
    expected = {"metric": loss.per_example(targets["label"], embedding)}
    for name in names:
        more = (0.3,) if name == "similarity" else ()
        expected[name] = RELATIONS[name](embedding, taught, *more)
    for name, values in expected.items():
        np.testing.assert_allclose(terms[name], values, rtol=1e-6)


def test_published_weights_can_be_changed() -> None:
    relation = ["similarity", "distance", "angle"]
    weights = student_of(relation=relation).weighting.term_weights
    assert list(weights.values()) == [1, 50, 1, 2]
    alone = student_of(relation="angle", loss_weights={"metric": 0.0})
    assert alone.weighting.term_weights == {"metric": 0.0, "angle": 2.0}


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> dict[str, str]:
    """One teacher in all its forms on disk."""
    folder = tmp_path_factory.mktemp("teachers")
    teacher = teacher_of()
    (folder / "run").mkdir()
    (folder / "interrupted").mkdir()
    teacher.save(folder / "run" / "best.keras")
    teacher_of(size=12).save(folder / "run" / "last.keras")
    teacher.save(folder / "interrupted" / "last.keras")
    teacher.encoder.save(folder / "encoder.keras")
    exported = export_model(teacher, folder / "exported" / "10")
    shutil.copytree(exported, folder / "exported" / "9")
    forms = {
        "run": "run",
        "interrupted run": "interrupted",
        "file": "run/best.keras",
        "encoder": "encoder.keras",
        "exports": "exported",
        "export": "exported/9",
    }
    return {name: str(folder / path) for name, path in forms.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "form",
    ["run", "interrupted run", "file", "encoder", "exports", "export"],
)
def test_teacher_loads_from_any_path(form, saved) -> None:
    student = student_of(saved[form])
    expected = teacher_of().predict(PIXELS, verbose=0)
    np.testing.assert_allclose(teacher_sees(student), expected, atol=1e-5)


def test_images_are_resized_for_a_larger_teacher() -> None:
    teacher = teacher_of(size=20, channels=3)
    larger = tf.image.resize(np.repeat(PIXELS, 3, axis=-1), (20, 20))
    np.testing.assert_allclose(
        teacher_sees(student_of(teacher)), teacher(larger), atol=1e-5
    )


def test_embeddings_of_a_teacher_are_normalized() -> None:
    plain = keras.Sequential([keras.Input((16, 16, 1)), keras.layers.Flatten()])
    lengths = np.linalg.norm(teacher_sees(student_of(plain)), axis=1)
    np.testing.assert_allclose(lengths, 1, rtol=1e-5)


@pytest.mark.slow
def test_training_changes_and_saves_no_teacher(saved, tmp_path) -> None:
    teacher = teacher_of()
    before = teacher.get_weights()
    student = student_of(teacher)
    plain = methods.baseline(network(), embedding_dim=5)
    student.compile("adam", run_eagerly=True)
    data = (PIXELS, IMAGES.labels)
    student.fit(*data, validation_data=data, verbose=0)
    for a, b in zip(teacher.get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b)
    embeds = [x.count_params() for x in (student.backbone, student.head)]
    assert sum(embeds) == plain.count_params() - weights_of_terms(plain)
    assert student.count_params() == sum(embeds) + weights_of_terms(student)
    student.save(tmp_path / "student.keras")
    again = keras.models.load_model(tmp_path / "student.keras")
    np.testing.assert_array_equal(
        again.predict(PIXELS, verbose=0), student.predict(PIXELS, verbose=0)
    )
    with pytest.raises(ValueError, match="`teacher` of distillation must be"):
        again.fit(*data, verbose=0)
    again.objective.learn_from(teacher)
    again.compile("adam", run_eagerly=True)
    assert np.isfinite(again.fit(*data, verbose=0).history["similarity"]).all()


def weights_of_terms(model: keras.Model) -> int:
    return len(model.weighting.weights)


@pytest.mark.slow
def test_path_of_the_teacher_is_saved_and_read_again(saved, tmp_path) -> None:
    student = student_of(saved["file"])
    student.compile(keras.optimizers.Adam(1e-2), run_eagerly=True)
    x, targets = PIXELS, {"label": IMAGES.labels}
    student.train_on_batch(x, targets)
    student.save(tmp_path / "student.keras")
    again = keras.models.load_model(tmp_path / "student.keras")
    assert again.objective._teacher.path == saved["file"]
    assert again.objective._teacher._embed is None
    student.reset_metrics()
    assert again.train_on_batch(x, targets) == pytest.approx(
        student.train_on_batch(x, targets), rel=1e-5
    )


@pytest.mark.slow
def test_embeddings_in_the_targets_replace_the_teacher() -> None:
    embeddings = teacher_of().predict(PIXELS, verbose=0)
    models = [student_of(teacher_of()), student_of()]
    logs = []
    for model, more in zip(models, ({}, {"teacher": embeddings}), strict=True):
        model.compile("sgd", run_eagerly=True)
        targets = {"label": IMAGES.labels, **more}
        logs.append(model.train_on_batch(PIXELS, targets))
    assert logs[0] == pytest.approx(logs[1], rel=1e-3)
    models[1].fit(PIXELS, targets, verbose=0)


@pytest.mark.parametrize("error", [FileNotFoundError, ValueError])
def test_unfit_teachers_raise(error, tmp_path) -> None:
    if error is ValueError:
        (tmp_path / "no.keras").write_text("nothing")
        with pytest.raises(ValueError, match=r"no\.keras"):
            student_of(tmp_path / "no.keras")
        with pytest.raises(ValueError, match="must embed what the backbone"):
            student_of(teacher_of(channels=4))
        with pytest.raises(ValueError, match=r"must return embeddings, \(B"):
            student_of(network())
        return
    with pytest.raises(error, match="Train the teacher first"):
        student_of(str(tmp_path / "missing"))
    with pytest.raises(error, match="which has neither"):
        student_of(str(tmp_path))


def test_precomputed_features_raise() -> None:
    frozen = backbones.get(network(), freeze=True)
    model = methods.distillation(frozen, teacher=teacher_of())
    features = backbones.features(model, IMAGES)
    model.compile("sgd")
    sampler = ClassBalanced(IMAGES.labels, 2, 4, steps_per_epoch=1)
    with pytest.raises(ValueError, match="must see the images"):
        model.fit(pipeline(features, sampler), verbose=0)
