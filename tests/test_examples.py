"""Examples in the docstrings of classes run."""

import doctest
import inspect
import re

import keras
import numpy as np
import pytest

import keras_dml as dml

CODE = re.compile(r"^Example:\n    ```python\n(.*?)^    ```$", re.M | re.S)


def names_after_example(cls: type, **more_names: object) -> dict:
    (code,) = CODE.findall(inspect.getdoc(cls) or "")
    names = {"dml": dml, "keras": keras, "np": np, **more_names}
    exec(inspect.cleandoc(code), names)  # noqa: S102
    return names


@pytest.mark.slow
def test_custom_head_and_objective_learn() -> None:
    head = names_after_example(dml.model.Head)["LinearHead"]
    terms = names_after_example(dml.model.Objective)["TripletsAndSpread"]
    labels = np.arange(48) % 6
    rng = np.random.default_rng(0)
    patterns = rng.uniform(0, 255, (6, 28, 28, 1))
    images = patterns[labels] / 2 + rng.uniform(0, 127, (48, 28, 28, 1))
    backbone = dml.backbones.get("small_convnet", input_shape=(28, 28, 1))
    model = dml.MetricModel(backbone, head(), terms())
    model.compile(keras.optimizers.Adam(1e-3), run_eagerly=True)
    logs = model.fit(images, labels, epochs=3, verbose=0).history
    assert logs["loss"][-1] < logs["loss"][0]
    assert set(logs) == {"loss", "triplet", "spread"}
    names = names_after_example(dml.MetricModel, images=images, labels=labels)
    norms = np.linalg.norm(names["embeddings"], axis=1)
    np.testing.assert_allclose(norms, 1, rtol=1e-5)


def test_index_with_columns_is_searched_and_saved(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    embeddings = np.random.default_rng(0).normal(size=(40, 8))
    names = names_after_example(
        dml.search.Index,
        embeddings=embeddings,
        prices=np.arange(40),
        labels=np.arange(40) % 4,
    )
    assert names["hits"].ids[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert np.max(names["hits"].ids) < 20
    assert len(dml.search.Index.load(tmp_path / "gallery")) == 40


def test_examples_of_losses_print_their_numbers() -> None:
    """One loss of each family has an example worked out by hand."""
    finder = doctest.DocTestFinder(recurse=False)
    runner = doctest.DocTestRunner()
    names = {**vars(dml.losses), "keras": keras}
    for entry in dml.losses.LOSSES.values():
        for example in finder.find(entry.value, globs=dict(names)):
            runner.run(example)
    assert runner.failures == 0
    assert runner.tries > 25
