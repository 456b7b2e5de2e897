"""What is done, what is not done again, what is refused, and what fails."""

import os
import pickle
import re
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest
import yaml

from keras_dml import recipes
from keras_dml.embedding.local import LocalWorkers
from keras_dml.embedding.workers import InProcess
from keras_dml.recipes import RecipeError
from keras_dml.runs.benchmark import benchmark, read_plan
from keras_dml.runs.benchmark.plan import JOURNAL, Run, read_journal
from keras_dml.runs.benchmark.training import (
    Building,
    Training,
    sigterm_passed_on,
)
from keras_dml.runs.folder import create_folder
from keras_dml.utils.files import one_at_a_time
from tests.runs.benchmark.stub import Stub
from tests.runs.small_run import METHODS, RECIPE, write_recipe

ALL = [("a", 0), ("b", 0), ("a", 1), ("b", 1)]


@pytest.fixture(autouse=True)
def without_charts(monkeypatch) -> None:
    """They take most of the time, and are drawn in test_report.py."""
    name = "keras_dml.runs.benchmark.report._chart"
    monkeypatch.setattr(name, lambda plan, ranked, metric: metric)


@pytest.fixture
def recipe(tmp_path) -> str:
    path = tmp_path / "small.yaml"
    path.write_text(RECIPE.format(folder="unread"))
    return str(path)


def plan_of(recipe: str, seeds: int = 2, **settings):
    own = "".join(f"::{key}={value}" for key, value in settings.items())
    return read_plan(
        [f"{recipe}::name=a{own}", f"{recipe}::name=b::epochs=4"],
        seeds,
        Path(recipe).parent / "out",
    )


def done_by(plan, stub: Stub, **options):
    entries, _ = benchmark(plan, "command", pool=stub, **options)
    return stub.done, entries


def report(recipe: str) -> str:
    return (Path(recipe).parent / "out" / "results.md").read_text()


def test_each_run_is_done_once(recipe) -> None:
    done, entries = done_by(plan_of(recipe), Stub())
    assert done == ALL
    assert [entry.key for entry in entries] == ALL
    assert all(entry.error is None for entry in entries)
    before = report(recipe)
    again, repeated = done_by(plan_of(recipe), Stub())
    assert again == []
    assert repeated == entries
    assert report(recipe) == before


def test_models_are_built_before_the_first_run(recipe) -> None:
    stub = Stub(problem="b: no such layer")
    with pytest.raises(RecipeError, match="begin.*\n.*b: no such layer"):
        done_by(plan_of(recipe), stub)
    assert stub.tried == [("a", 0), ("b", 0)]
    assert stub.done == []
    done_by(plan_of(recipe), Stub())
    more = Stub()
    done_by(plan_of(recipe, seeds=3), more)
    assert more.tried == [("a", 2), ("b", 2)]


def test_several_runs_at_a_time(recipe, tmp_path) -> None:
    """Whatever ends first, nothing is lost and the tables are the same."""
    done_by(plan_of(recipe), Stub())
    one_by_one = report(recipe)
    shutil.rmtree(tmp_path / "out")
    done, entries = done_by(plan_of(recipe), Stub(jobs=3))
    assert done == [ALL[2], ALL[3], ALL[1], ALL[0]]
    assert [entry.key for entry in entries] == ALL
    assert report(recipe) == one_by_one


def test_ctrl_c_with_several_runs_at_a_time(recipe) -> None:
    with pytest.raises(KeyboardInterrupt):
        done_by(plan_of(recipe), Stub(stops=2, jobs=2))
    assert "1 of 4 runs finished, 3 remaining." in report(recipe)
    done, _ = done_by(plan_of(recipe), Stub(jobs=2))
    assert sorted(done) == sorted(set(ALL) - {ALL[1]})


@pytest.mark.parametrize("jobs", [0, 1.5, True])
def test_a_number_of_jobs_that_is_none(jobs, recipe, tmp_path) -> None:
    with pytest.raises(ValueError, match="`jobs` of benchmark"):
        done_by(plan_of(recipe), Stub(), jobs=jobs)
    assert not (tmp_path / "out").exists()


def test_more_seeds_and_recipes_later(recipe, tmp_path) -> None:
    done_by(plan_of(recipe, seeds=1), Stub())
    done, _ = done_by(plan_of(recipe, seeds=2), Stub())
    assert done == ALL[2:]
    texts = [f"{recipe}::name=a", f"{recipe}::name=c"]
    done, entries = done_by(read_plan(texts, 1, tmp_path / "out"), Stub())
    assert done == [("c", 0)]
    assert [entry.key for entry in entries] == [("a", 0), ("c", 0)]


def test_ctrl_c_keeps_what_is_done(recipe) -> None:
    with pytest.raises(KeyboardInterrupt):
        done_by(plan_of(recipe), Stub(stops=3))
    assert "2 of 4 runs finished, 2 remaining." in report(recipe)
    half = Path(recipe).parent / "out" / "a" / "seed-1" / "last.keras"
    assert half.exists()
    done, _ = done_by(plan_of(recipe), Stub())
    assert done == ALL[2:]
    assert not half.exists()
    assert "4 of 4 runs finished." in report(recipe)


def test_killed_during_the_second_run(recipe, tmp_path) -> None:
    """What is on the disk at that time is what a kill leaves."""
    out, left = tmp_path / "out", tmp_path / "left"

    class Killed(Stub):
        def _result(self, run: Run) -> str | None:
            if len(self.done) == 1:
                create_folder(run.folder, run.recipe)
                shutil.copytree(out, left)
                raise KeyboardInterrupt
            return super()._result(run)

    with pytest.raises(KeyboardInterrupt):
        done_by(plan_of(recipe), Killed())
    shutil.rmtree(out)
    left.rename(out)
    assert (out / "b" / "seed-0" / "recipe.yaml").exists()
    assert list(read_journal(out)) == ALL[:1]
    done, _ = done_by(plan_of(recipe), Stub())
    assert done == ALL[1:]


def test_a_failure_does_not_stop_the_others(recipe) -> None:
    fails = {"a": "ValueError: too | few\nimages"}
    done, entries = done_by(plan_of(recipe), Stub(fails))
    assert done == ALL
    assert [entry.error is None for entry in entries] == [False, True] * 2
    text = report(recipe)
    assert "2 of 4 runs finished, 2 failed." in text
    assert "| a | 1 | ValueError: too \\| few images |" in text
    assert done_by(plan_of(recipe), Stub())[0] == []
    retried, entries = done_by(plan_of(recipe), Stub(), retry=True)
    assert retried == [("a", 0), ("a", 1)]
    assert all(entry.error is None for entry in entries)
    assert "Failed" not in report(recipe)


def test_a_failed_recipe_may_be_mended(recipe) -> None:
    done_by(plan_of(recipe), Stub({"a": "ValueError"}))
    done, _ = done_by(plan_of(recipe, epochs=1), Stub())
    assert done == [("a", 0), ("a", 1)]


def test_a_changed_recipe_is_refused(recipe) -> None:
    done_by(plan_of(recipe), Stub())
    journal = Path(recipe).parent / "out" / JOURNAL
    before = journal.read_bytes()
    stub = Stub()
    with pytest.raises(RecipeError, match="epochs: 2 → 3") as error:
        done_by(plan_of(recipe, epochs=3), stub)
    assert "'a' must be the one that was trained" in str(error.value)
    assert "another name" in str(error.value)
    assert stub.done == []
    assert journal.read_bytes() == before


def test_a_setting_that_was_added_since_is_no_change(recipe) -> None:
    """An older version's recipe says nothing of it, and gets its default."""
    done_by(plan_of(recipe, seeds=1), Stub())
    out = Path(recipe).parent / "out"
    kept = out / "a" / "seed-0" / "recipe.yaml"
    older = yaml.safe_load(kept.read_text())
    assert older.pop("jit") == "auto"
    kept.write_text(yaml.safe_dump(older))
    journal = out / JOURNAL
    digest = plan_of(recipe).runs()[0].digest
    journal.write_text(journal.read_text().replace(digest, "older"))
    assert done_by(plan_of(recipe, seeds=1), Stub())[0] == []
    with pytest.raises(RecipeError, match="epochs: 2 → 3"):
        done_by(plan_of(recipe, seeds=1, epochs=3), Stub())


def test_a_loss_by_name_or_in_a_section_is_no_change(recipe) -> None:
    plain, section = "triplet", "{name: triplet}"
    done_by(plan_of(recipe, **{"method.loss": section}), Stub())
    same = plan_of(recipe, **{"method.loss": plain})
    assert done_by(same, Stub())[0] == []
    # As a version wrote it that told them apart.
    kept = Path(recipe).parent / "out" / "a" / "seed-0" / "recipe.yaml"
    kept.write_text(kept.read_text().replace(
        "loss: triplet", "loss: {name: triplet}"
    ))  # fmt: skip
    journal = Path(recipe).parent / "out" / JOURNAL
    digest = same.runs()[0].digest
    journal.write_text(journal.read_text().replace(digest, "older"))
    assert done_by(same, Stub())[0] == []
    other = plan_of(recipe, **{"method.loss": plain}, epochs=3)
    with pytest.raises(RecipeError, match="epochs: 2 → 3") as error:
        done_by(other, Stub())
    assert "method.loss" not in str(error.value)


def test_two_benchmarks_do_not_share_a_folder(recipe) -> None:
    plan = plan_of(recipe)
    plan.output.mkdir()
    with one_at_a_time(plan.output, "benchmark"):
        with pytest.raises(OSError, match="Another benchmark is using"):
            done_by(plan, Stub())


def test_a_run_can_be_pickled(recipe, tmp_path) -> None:
    run = Run(recipes.load(recipe, ("seed=3",)), tmp_path / "a", "5m")
    again = pickle.loads(pickle.dumps(run))
    assert recipes.dump(again.recipe) == recipes.dump(run.recipe)
    assert (again.folder, again.save_every) == (run.folder, "5m")
    assert again.digest == run.digest


def test_a_failure_and_a_death_are_results(recipe, tmp_path) -> None:
    run = Run(recipes.load(recipe), tmp_path / "small" / "seed-0")
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
    assert "gone.keras" in files and "'gone' does not exist" in files
