"""Files of one backend, read on the other: `python -m tests.model.crossing`.

On JAX: reads the folder `tensorflow` in the working directory, and makes
`jax` and `exports`. What TensorFlow makes and reads, it does in a test.
"""

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from click.testing import CliRunner

import keras_dml as dml
from keras_dml import export, recipes, runs
from keras_dml.cli import main as command
from tests.conftest import blobs
from tests.model.steps import batches, model_of
from tests.runs.small_run import METHODS, QUICK, write_recipe

# Groups, queues and a momentum network, a slicer, proxies.
CASES = "attentive_grouping", "diva", "divide_and_conquer", "baseline, proxies"

Values = dict[str, Any]


def make(folder: Path) -> None:
    """Writes trained models, an index, a run and a training state."""
    folder.mkdir()
    for case in CASES:
        keras.utils.set_random_seed(0)
        model, _ = model_of(case)
        model.fit(data_of(case), verbose=0)
        model.save(folder / f"{case}.keras")
        np.savez(folder / f"{case}.npz", **values_of(model, case))
    index = dml.search.Index.build(model, blobs())
    index.save(folder / "index")
    np.savez(folder / "hits.npz", **hits_of(index))
    train(folder, epochs=1)
    path = write_recipe(folder)
    recipe = recipes.load(path, (METHODS["divide_and_conquer"], *QUICK))
    runs.train(recipe, folder / "run", verbose=0)
    (folder / "metrics.json").write_text(json.dumps(metrics_of(folder)))


def read(folder: Path) -> None:
    """Checks files that `make` wrote on the other backend."""
    for case in CASES:
        model = keras.models.load_model(folder / f"{case}.keras")
        values = values_of(model, case)
        with np.load(folder / f"{case}.npz") as expected:
            assert set(values) == set(expected), set(values) ^ set(expected)
            for name, value in expected.items():
                same(values[name], value, f"{case}, {name}")
    index = dml.search.Index.load(folder / "index")
    with np.load(folder / "hits.npz") as expected:
        for name, value in hits_of(index).items():
            same(value, expected[name], name)
    expected = json.loads((folder / "metrics.json").read_text())
    for name, value in metrics_of(folder).items():
        same(value, expected[name], name)
    with pytest.raises(ValueError, match="(?s)versions.*jax|jax.*versions"):
        train(folder, epochs=2)


def data_of(case: str) -> Any:
    return batches(case.partition(",")[0]).take(2)


def values_of(model: keras.Model, case: str) -> Values:
    """Variables, embeddings, and losses of the continued training."""
    images = blobs()
    values = {"embeddings": dml.evaluation.embed(model, images)}
    variables = [*model.variables, *model.optimizer.variables]
    for i, variable in enumerate(variables):
        values[f"variable {i}"] = keras.ops.convert_to_numpy(variable)
    if case == "baseline, proxies":  # Others draw, or are like it.
        history = model.fit(data_of(case), epochs=2, verbose=0).history
        values["losses"] = history["loss"]
    return values


def hits_of(index: Any) -> Values:
    hits = index.search(blobs(seed=1).images[::8], k=3)
    return {"ids": hits.ids, "scores": hits.scores}


def metrics_of(folder: Path) -> Values:
    """Metrics that `keras-dml evaluate` prints for the run."""
    arguments = ["evaluate", str(folder / "run"), "--json"]
    ended = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    metrics: Values = json.loads(ended.stdout)["metrics"]
    return metrics


def train(folder: Path, epochs: int) -> None:
    model, _ = model_of("baseline, proxies")
    resume = dml.callbacks.Resume(folder / "state")
    data = data_of("baseline")
    model.fit(data, epochs=epochs, callbacks=[resume], verbose=0)


def same(actual: Any, expected: Any, name: str) -> None:
    np.testing.assert_allclose(
        actual, expected, rtol=1e-5, atol=1e-5, err_msg=name
    )


def write_exports(folder: Path) -> None:
    """Exports models that JAX trained, in all formats."""
    jax_folder = folder.with_name("jax")
    for case, name, options in (
        ("attentive_grouping", "served/1", {"gallery": blobs(), "k": 3}),
        ("divide_and_conquer", "model.onnx", {"format": "onnx"}),
        ("diva", "model.tflite", {"format": "litert"}),
    ):
        model = keras.models.load_model(jax_folder / f"{case}.keras")
        path = export.export_model(model, folder / name, **options)
        assert path == folder / name


def main() -> None:
    assert keras.backend.backend() == "jax"
    folder = Path.cwd()
    read(folder / "tensorflow")
    make(folder / "jax")
    write_exports(folder / "exports")


if __name__ == "__main__":
    main()
