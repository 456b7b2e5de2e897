"""Trust: reading a run or model executes none of its author's code."""

import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from keras_dml import backbones, data, losses, methods, recipes, runs
from keras_dml.cli import main
from keras_dml.evaluation import METRICS
from keras_dml.hub import push_to_hub
from keras_dml.model.teacher import Teacher
from keras_dml.reports import Run as ReportedRun
from keras_dml.reports import report
from keras_dml.runs.folder import changed_settings, load_outcome
from keras_dml.runs.plan import Run
from keras_dml.search import Index
from keras_dml.serve.current import load as load_served
from keras_dml.utils.models import read_model
from tests.runs.small_run import METHODS, write_unread
from tests.runs.stub import finish

MODULE = "module_of_a_stranger"
CODE = """
from pathlib import Path
from keras_dml import evaluation, losses, methods

Path(__file__).with_suffix(".ran").touch()

def method(backbone, *, embedding_dim: int = 8, **kwargs):
    return methods.baseline(backbone, embedding_dim=embedding_dim, **kwargs)

def loss(labels, embeddings):
    return 0.0 * embeddings[:, 0]

def augment(images):
    return images

@evaluation.METRICS.register("odd_metric", "nothing")
def odd_metric(ranks): return ranks.counts
"""

NAMES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "method": lambda x: x.update(method={"name": f"{MODULE}:method"}),
    "loss": lambda x: x["method"].update(loss=f"{MODULE}:loss"),
    "weighted": lambda x: x["method"].update(
        loss={"odd": {"name": f"{MODULE}:loss"}}
    ),
    "mining": lambda x: x["method"].update(
        loss={"name": "margin", "mining": {"name": f"{MODULE}:miner"}}
    ),
    "metric": lambda x: x["evaluation"].update(
        metrics=[f"{MODULE}:odd_metric"]
    ),
    "augment": lambda x: x.update(
        augmentation={"augment": {f"{MODULE}:augment": {}}}
    ),
}
"""Places in a recipe, each of which names the module."""


@pytest.fixture
def marker(tmp_path, monkeypatch):
    """The file that a stranger's module writes on import."""
    for registry in (losses.LOSSES, methods.METHODS, METRICS):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    (tmp_path / f"{MODULE}.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / f"{MODULE}.ran"
    sys.modules.pop(MODULE, None)


@pytest.fixture
def make_run(tmp_path, marker) -> Callable[[str], Path]:
    """Makes a finished run whose recipe names the module in one place."""

    def make(place: str) -> Path:
        recipe = recipes.load(
            write_unread(tmp_path), (METHODS["baseline"], "name=strange")
        )
        finish(Run(recipe, tmp_path / "run"))
        file = tmp_path / "run" / "recipe.yaml"
        content = yaml.safe_load(file.read_text())
        NAMES[place](content)
        file.write_text(yaml.safe_dump(content))
        return tmp_path / "run"

    return make


def command(*words: str) -> Callable[..., Any]:
    def call(run: Path, trust: bool = False) -> None:
        arguments = [x.format(run=run, up=run.parent) for x in words]
        flags = ["--trust"] * trust
        result = CliRunner().invoke(main, [*arguments, *flags])
        if result.exit_code:
            raise ValueError(result.output)

    return call


READINGS: dict[str, Callable[..., Any]] = {
    "load_recipe": runs.load_recipe,
    "load_outcome": load_outcome,
    "load_model": runs.load_model,
    "remeasure": runs.remeasure,
    "Run": ReportedRun,
    "report": report,
    "push_to_hub": lambda run, **x: push_to_hub(run, "owner/name", **x),
    "serve": lambda run, **x: load_served(str(run), **x),
    "keras-dml evaluate": command("evaluate", "{run}"),
    "keras-dml embed": command("embed", "{run}", "test", "{up}/out"),
    "keras-dml export": command("export", "{run}", "--output", "{up}/out"),
    "keras-dml index": command("index", "{run}", "test"),
    "keras-dml search": command(
        "search",
        "{up}/small.yaml",
        "--index",
        "{up}/none",
        "--model-of",
        "{run}",
    ),
    "keras-dml report": command("report", "{run}"),
    "keras-dml figures": command("figures", "{run}", "{run}"),
    "keras-dml serve": command("serve", "{run}", "--port", "0"),
    "keras-dml recipes show": command("recipes", "show", "{run}/recipe.yaml"),
}


@pytest.mark.parametrize("place", NAMES)
def test_module_named_by_a_run_is_not_imported(place, make_run, marker) -> None:
    folder = make_run(place)
    with pytest.raises(recipes.RecipeError, match=f"import {MODULE}") as raised:
        load_outcome(folder)
    for part in (str(folder), MODULE, "trust=True", "--trust"):
        assert part in str(raised.value)
    assert not marker.exists()


@pytest.mark.parametrize("reading", READINGS)
def test_module_is_imported_only_with_trust(reading, make_run, marker) -> None:
    folder = make_run("method")
    with pytest.raises(ValueError, match=f"`import {MODULE}` before"):
        READINGS[reading](folder)
    assert not marker.exists()
    try:
        READINGS[reading](folder, trust=True)
    except (ValueError, OSError, ImportError):
        pass  # The run has no model, and its data are not there.
    assert marker.exists()


def test_imported_module_is_used(make_run, marker) -> None:
    folder = make_run("method")
    __import__(MODULE)
    assert runs.load_recipe(folder).method.name == f"{MODULE}:method"


def test_training_imports_the_modules_of_a_recipe(make_run, marker) -> None:
    recipe = recipes.load(make_run("method") / "recipe.yaml")
    assert recipe.method.embedding_dim == 8
    assert marker.exists()


def test_resuming_imports_only_modules_of_the_own_recipe(
    make_run, marker, tmp_path
) -> None:
    folder, file = make_run("method"), tmp_path / "small.yaml"
    assert any(
        MODULE in x for x in changed_settings(folder, recipes.load(file))
    )
    resume = command("train", str(file), "--resume", "--output", "{run}")
    with pytest.raises(ValueError, match="belongs to another recipe"):
        resume(folder)
    assert not marker.exists()


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """A model file whose objective names the module as its loss."""
    folder = tmp_path_factory.mktemp("saved")
    network = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model = methods.baseline(network, embedding_dim=2, loss="contrastive")
    model.save(folder / "own.keras")
    with zipfile.ZipFile(folder / "own.keras") as file:
        parts = {x: file.read(x) for x in file.namelist()}
    config = json.loads(parts["config.json"])
    objective = config["config"]["objective"]["config"]
    assert objective["loss"]["class_name"]
    objective["loss"] = f"{MODULE}:loss"
    parts["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(folder / "strange.keras", "w") as file:
        for name, content in parts.items():
            file.writestr(name, content)
    return folder / "strange.keras"


def as_run(path: Path) -> Any:
    """Makes a run without module names that holds the model."""
    folder = path.parent / "run"
    if not folder.exists():
        recipe = recipes.load(write_unread(path.parent), (METHODS["baseline"],))
        runs.create_folder(folder, recipe)
    (folder / "best.keras").write_bytes(path.read_bytes())
    return folder


FILES: dict[str, Callable[[Path], Any]] = {
    "read_model": read_model,
    "load_model": lambda x: runs.load_model(as_run(x)),
    "serve": lambda x: load_served(str(x)),
    "backbones.get": lambda x: backbones.get(str(x), input_shape=None),
    "teacher": lambda x: Teacher(x).load(),
    "keras": lambda x: keras.models.load_model(x),
    "keras-dml embed": lambda x: command("embed", str(x), "{run}", "{run}/o")(
        as_run(x)
    ),
}


@pytest.mark.parametrize("way", FILES)
def test_model_file_imports_no_module(way, saved, marker) -> None:
    with pytest.raises((ValueError, TypeError), match=MODULE):
        FILES[way](saved)
    assert not marker.exists()


def test_trusted_run_may_have_lambda_layers(tmp_path) -> None:
    network = keras.Sequential(
        [keras.Input((4,)), keras.layers.Lambda(lambda x: 2 * x)]
    )
    network.save(tmp_path / "lambda.keras")
    folder = as_run(tmp_path / "lambda.keras")
    with pytest.raises(ValueError, match="Lambda.*trust=True.*--trust"):
        runs.load_model(folder)
    loaded = runs.load_model(folder, trust=True)
    assert float(loaded(np.full((1, 4), 4.0))[0, 3]) == 8
    with pytest.raises(ValueError, match="Lambda"):  # Trust has ended.
        read_model(tmp_path / "lambda.keras")


def test_index_runs_no_code_of_its_model(tmp_path) -> None:
    network = keras.Sequential(
        [keras.Input((4,)), keras.layers.Lambda(lambda x: 2 * x)]
    )
    examples = data.ArraySet(np.eye(4, dtype="float32"))
    Index.build(network, examples).save(tmp_path / "index")
    one = examples.select([0])
    with pytest.raises(ValueError, match="Lambda"):
        Index.load(tmp_path / "index").search(one)
    for options in ({"model": network}, {"trust": True}):
        hits = Index.load(tmp_path / "index", **options).search(one, 1)
        assert hits[0][0].key == 0
    with pytest.raises(ValueError, match="Lambda"):  # Trust has ended.
        Index.load(tmp_path / "index").search(one)
