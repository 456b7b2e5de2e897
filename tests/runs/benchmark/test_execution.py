"""The processes of a benchmark, where runs do not go well."""

import os
import pickle
import re
import signal
import threading
import time
from pathlib import Path

import pytest

from keras_dml import recipes
from keras_dml.embedding.local import LocalWorkers
from keras_dml.embedding.workers import InProcess
from keras_dml.runs.benchmark.plan import Run
from keras_dml.runs.benchmark.training import (
    Building,
    Training,
    sigterm_passed_on,
)
from tests.runs.small_run import METHODS, RECIPE, write_recipe


def test_a_run_can_be_pickled(tmp_path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(RECIPE.format(folder="nowhere"))
    run = Run(recipes.load(path, ("seed=3",)), tmp_path / "a", "5m")
    again = pickle.loads(pickle.dumps(run))
    assert recipes.dump(again.recipe) == recipes.dump(run.recipe)
    assert (again.folder, again.save_every) == (run.folder, "5m")
    assert again.digest == run.digest


def test_a_failure_and_a_death_are_results(tmp_path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(RECIPE.format(folder="nowhere"))
    run = Run(recipes.load(path), tmp_path / "small" / "seed-0")
    run.log.parent.mkdir()
    [(_, failed)] = InProcess().run(Training(), [run])
    assert failed.startswith("FileNotFoundError: ")
    # The pool repeats what the death of a worker ended.
    [(_, died)] = InProcess().run(Training(), [run])
    assert re.search("died.*memory.*seed-0.log", died)


@pytest.mark.slow
def test_sigterm_is_passed_on_and_the_run_goes_on(tmp_path) -> None:
    path = write_recipe(tmp_path)
    recipe = recipes.load(path, ("epochs=4", METHODS["baseline"]))
    run = Run(recipe, tmp_path / "small" / "seed-0", save_every="1")
    run.log.parent.mkdir()

    def terminate() -> None:
        while not list((run.folder / "state").glob("state-*.npz")):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    # Daemonic: nothing ends it where training fails before its first line.
    waiting = threading.Thread(target=terminate, daemon=True)
    waiting.start()
    with pytest.raises(SystemExit) as raised, sigterm_passed_on():
        list(LocalWorkers(1).run(Training(), [run]))
    waiting.join()
    assert raised.value.code == 75
    assert "SIGTERM: training stops here" in run.log.read_text()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    run.log.unlink()
    [(_, error)] = InProcess().run(Training(), [run])
    assert error is None
    assert len((run.folder / "metrics.csv").read_text().split()) == 5


def test_models_that_cannot_be_built(tmp_path) -> None:
    path = write_recipe(tmp_path)
    changes = {
        "fine": (),
        "layer": ("backbone.output=gone",),
        "files": ("data.path=gone", "backbone.name=gone.keras"),
    }
    runs = [
        Run(recipes.load(path, (f"name={name}", *settings)), Path(name))
        for name, settings in changes.items()
    ]
    fine, layer, files = (x for _, x in InProcess().run(Building(), runs))
    assert fine is None
    assert re.match("layer: .*`output`", layer)
    assert re.match("files: .*cannot be trained", files)
    assert "gone.keras" in files and "'gone' does not exist" in files
