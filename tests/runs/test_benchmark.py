"""Benchmarks: finished, repeated, rejected and failed runs."""

import contextlib
import json
import os
import signal
import threading
import time
from pathlib import Path

import keras
import pytest

from keras_dml import recipes, runs
from keras_dml.recipes import RecipeError
from keras_dml.runs.benchmark import _entry, benchmark, read_plan
from keras_dml.runs.plan import JOURNAL, Run, read_journal
from keras_dml.runs.training import rehearse
from keras_dml.utils.files import one_at_a_time
from tests.runs.small_run import METHODS, write_recipe, write_unread
from tests.runs.stub import Stub, in_place

ALL = [("a", 0), ("b", 0), ("a", 1), ("b", 1)]


@pytest.fixture
def recipe(tmp_path) -> str:
    return str(write_unread(tmp_path))


def plan_of(recipe: str, seeds: int = 2, **settings):
    changes = "".join(f"::{key}={value}" for key, value in settings.items())
    return read_plan(
        [f"{recipe}::name=a{changes}", f"{recipe}::name=b::epochs=4"],
        seeds,
        Path(recipe).parent / "out",
    )


def done_by(plan, stub: Stub, **options):
    """Trains the runs of a plan with a stub; returns runs and entries."""
    with in_place(stub):
        entries, _ = benchmark(plan, "command", **options)
    return stub.keys, entries


def report(recipe: str) -> str:
    return (Path(recipe).parent / "out" / "results.md").read_text()


def test_each_run_is_trained_once(recipe) -> None:
    keys, entries = done_by(plan_of(recipe), Stub())
    assert keys == ALL
    assert [entry.key for entry in entries] == ALL
    assert all(entry.error is None for entry in entries)
    before = report(recipe)
    again, repeated = done_by(plan_of(recipe), Stub())
    assert again == []
    assert repeated == entries
    assert report(recipe) == before


def test_several_jobs_write_the_same_tables(recipe) -> None:
    stub = Stub()
    done_by(plan_of(recipe), stub, jobs=3)
    assert stub.jobs == {3}
    assert sorted(stub.keys) == sorted(ALL)
    several = report(recipe)
    (Path(recipe).parent / "out" / JOURNAL).unlink()
    done_by(plan_of(recipe), Stub())
    assert report(recipe) == several


def test_seeds_and_recipes_can_be_added(recipe, tmp_path) -> None:
    done_by(plan_of(recipe, seeds=1), Stub())
    keys, _ = done_by(plan_of(recipe, seeds=2), Stub())
    assert keys == ALL[2:]
    texts = [f"{recipe}::name=a", f"{recipe}::name=c"]
    keys, entries = done_by(read_plan(texts, 1, tmp_path / "out"), Stub())
    assert keys == [("c", 0)]
    assert [entry.key for entry in entries] == [("a", 0), ("c", 0)]


# Ctrl-C may come while a file is opened, which nobody closes then.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_keeps_finished_runs(recipe) -> None:
    with pytest.raises(KeyboardInterrupt):
        done_by(plan_of(recipe), Stub(stops=3))
    assert "2 of 4 runs finished, 2 remaining." in report(recipe)
    half = Path(recipe).parent / "out" / "a" / "seed-1" / "last.keras"
    assert half.exists()
    keys, _ = done_by(plan_of(recipe), Stub())
    assert keys == ALL[2:]
    assert not half.exists()
    assert "4 of 4 runs finished." in report(recipe)


def test_failed_run_does_not_stop_the_others(recipe) -> None:
    fails = {"a": "too | few\nimages"}
    keys, entries = done_by(plan_of(recipe), Stub(fails))
    assert keys == ALL
    assert [entry.error is None for entry in entries] == [False, True] * 2
    text = report(recipe)
    assert "2 of 4 runs finished, 2 failed." in text
    assert "| a | 1 | too \\| few images |" in text
    assert done_by(plan_of(recipe), Stub())[0] == []
    # A recipe that failed can be changed.
    changed, _ = done_by(plan_of(recipe, epochs=1), Stub(fails))
    assert changed == [("a", 0), ("a", 1)]
    retried, entries = done_by(plan_of(recipe), Stub(), retry=True)
    assert retried == [("a", 0), ("a", 1)]
    assert all(entry.error is None for entry in entries)
    assert "Failed" not in report(recipe)


def test_killed_process_is_a_failure(recipe, tmp_path) -> None:
    run = Run(recipes.load(recipe), tmp_path / "small" / "seed-0")
    error = _entry(run, -signal.SIGKILL).error
    assert "signal 9" in error and "memory" in error


def test_changed_recipe_raises(recipe) -> None:
    done_by(plan_of(recipe), Stub())
    journal = Path(recipe).parent / "out" / JOURNAL
    before = journal.read_bytes()
    stub = Stub()
    with pytest.raises(RecipeError, match="epochs: 2 → 3") as error:
        done_by(plan_of(recipe, epochs=3), stub)
    assert "'a' must be the one that was trained" in str(error.value)
    assert "another name" in str(error.value)
    assert stub.keys == []
    assert journal.read_bytes() == before


@pytest.mark.parametrize(
    ("now", "then"),
    [("jit: auto\n", ""), ("loss: triplet", "loss: {name: triplet}")],
    ids=["a setting added since", "a loss in a section"],
)
def test_recipe_of_an_older_version_counts_as_unchanged(
    now, then, recipe
) -> None:
    loss = {"method.loss": "triplet"}
    same = plan_of(recipe, seeds=1, **loss)
    done_by(same, Stub())
    out = Path(recipe).parent / "out"
    kept = out / "a" / "seed-0" / "recipe.yaml"
    assert now in kept.read_text()
    kept.write_text(kept.read_text().replace(now, then))
    journal = out / JOURNAL
    older = journal.read_text().replace(same.runs()[0].digest, "older")
    journal.write_text(older)
    assert done_by(same, Stub())[0] == []
    with pytest.raises(RecipeError, match="epochs: 2 → 3") as error:
        done_by(plan_of(recipe, seeds=1, **loss, epochs=3), Stub())
    assert "method.loss" not in str(error.value)


def test_two_benchmarks_do_not_share_a_folder(recipe) -> None:
    plan = plan_of(recipe)
    with pytest.raises(ValueError, match="`jobs` of benchmark"):
        benchmark(plan, "command", jobs=0)
    plan.output.mkdir()
    with one_at_a_time(plan.output, "benchmark"):
        with pytest.raises(OSError, match="Another benchmark is using"):
            done_by(plan, Stub())


@pytest.mark.slow
def test_sigterm_saves_the_state_and_the_run_continues(tmp_path) -> None:
    path = write_recipe(tmp_path)
    settings = ("epochs=4", METHODS["baseline"])
    plan = read_plan([str(path)], 1, tmp_path / "out", settings, None, "1")
    (run,) = plan.runs()

    def terminate() -> None:
        while not list((run.folder / "state").glob("state-*.npz")):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    # Daemonic: nothing ends it where training fails before its first line.
    thread = threading.Thread(target=terminate, daemon=True)
    thread.start()
    with pytest.raises(SystemExit) as raised:
        benchmark(plan, "command")
    thread.join()
    assert raised.value.code == 75
    assert "SIGTERM: training stops here" in run.log.read_text()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    (entry,), _ = benchmark(plan, "command")
    assert entry.error is None
    assert len((run.folder / "metrics.csv").read_text().split()) == 5
    assert entry.metrics == dict(runs.remeasure(run.folder).results)
    assert "val_map@r" in run.log.read_text()


OWN_METHOD = """
import keras_dml as dml

class Broken(dml.LossObjective):
    def call(self, outputs, targets):
        return {"metric": outputs["no_such_output"]}

def broken(backbone, *, embedding_dim: int = 8, **kwargs):
    backbone = dml.backbones.get(backbone)
    head = dml.methods.EmbeddingHead(embedding_dim)
    return dml.MetricModel(backbone, head, Broken("triplet"), **kwargs)
"""


@pytest.mark.slow
def test_recipes_are_rehearsed_before_the_first_run(
    tmp_path, monkeypatch
) -> None:
    (tmp_path / "own_method.py").write_text(OWN_METHOD)
    monkeypatch.syspath_prepend(tmp_path)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    good, out = write_recipe(tmp_path), tmp_path / "out"
    quick = f"{METHODS['baseline']}::epochs=1"
    texts = [
        f"{good}::{quick}",
        f"{good}::name=own::method={{name: 'own_method:broken'}}",
        f"{good}::name=unread::data.path={tmp_path / 'nowhere'}",
    ]
    said: list[str] = []
    with pytest.raises(RecipeError, match="nothing was trained") as error:
        benchmark(read_plan(texts, 2, out), "command", echo=said.append)
    message = str(error.value)
    assert "own: KeyError: " in message and "no_such_output" in message
    assert "unread: " in message and "small: " not in message
    assert said == ["Trying a step of each recipe first (3)"]
    assert not read_journal(out) and not list(out.glob("*/seed-*/"))
    # The step that was tried leaves no trace in the digits of the run.
    (entry,), _ = benchmark(read_plan(texts[:1], 1, out), "command")
    alone = runs.train(
        read_plan(texts[:1], 1, out).runs()[0].recipe, tmp_path / "alone",
        verbose=0,
    )  # fmt: skip
    assert entry.metrics == dict(alone.after)
    # Recipes that have ended a run are not tried again.
    said.clear()
    benchmark(read_plan(texts[:1], 2, out), "command", echo=said.append)
    assert not [x for x in said if "Trying" in x]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_every_kind_of_method_can_be_rehearsed(method, tmp_path) -> None:
    path = tmp_path / "tried.json"
    settings = (METHODS[method], "epochs=1")
    recipe = recipes.load(str(write_recipe(tmp_path)), settings)
    (tmp_path / "tried.yaml").write_text(recipes.dump(recipe))
    with contextlib.ExitStack() as stack:
        stack.callback(keras.config.set_dtype_policy, "float32")
        rehearse([str(tmp_path / "tried.yaml")], str(path))
    assert json.loads(path.read_text()) == {}
