from pathlib import Path

import pytest

from keras_dml.recipes import RecipeError
from keras_dml.runs.benchmark.plan import (
    JOURNAL,
    Entry,
    append_entry,
    read_journal,
    read_plan,
)
from tests.runs.small_run import write_recipe


@pytest.fixture
def recipe(tmp_path) -> str:
    return str(write_recipe(tmp_path))


def test_every_recipe_with_the_first_seed_first(recipe, tmp_path) -> None:
    plan = read_plan([recipe, f"{recipe}::name=other"], 2, tmp_path / "out")
    assert [run.key for run in plan.runs()] == [
        ("small", 0), ("other", 0), ("small", 1), ("other", 1),
    ]  # fmt: skip
    assert plan.runs()[3].folder == tmp_path / "out" / "other" / "seed-1"
    assert plan.baseline == "small"
    assert len({run.digest for run in plan.runs()}) == 4


def test_settings_of_all_and_of_one(recipe, tmp_path) -> None:
    plan = read_plan(
        [recipe, f"{recipe}::name=b::epochs=7::method.loss={{name: triplet}}"],
        1,
        tmp_path,
        ["epochs=3", "batches.images_per_class=2"],
        "b",
    )
    first, second = plan.recipes
    assert (first.epochs, second.epochs) == (3, 7)
    assert (
        first.batches.images_per_class,
        second.batches.images_per_class,
    ) == (2, 2)
    assert second.method.loss == "triplet"
    assert plan.baseline == "b"


def test_bases_are_left_out(recipe, tmp_path) -> None:
    base = tmp_path / "_base.yaml"
    base.write_text("epochs: 2\n")
    plan = read_plan([str(base), recipe], 1, tmp_path)
    assert [r.name for r in plan.recipes] == ["small"]
    with pytest.raises(ValueError, match="not only a base"):
        read_plan([str(base)], 1, tmp_path)


def test_two_recipes_of_one_name(recipe, tmp_path) -> None:
    with pytest.raises(RecipeError, match="different names") as error:
        read_plan([recipe, f"{recipe}::epochs=1"], 1, tmp_path)
    assert "::epochs=1::name=small-2" in str(error.value)


def test_the_seed_is_not_a_setting(recipe, tmp_path) -> None:
    with pytest.raises(RecipeError, match="--seeds"):
        read_plan([recipe], 1, tmp_path, ["seed=3"])
    with pytest.raises(RecipeError, match="--seeds"):
        read_plan([f"{recipe}::seed=3"], 1, tmp_path)


def test_unknown_baseline_and_no_seeds(recipe, tmp_path) -> None:
    with pytest.raises(ValueError, match="baseline='other'.*small"):
        read_plan([recipe], 1, tmp_path, baseline="other")
    with pytest.raises(ValueError, match="seeds=0"):
        read_plan([recipe], 0, tmp_path)


ENTRIES = [
    Entry("a", 0, "x", metrics={"map@r": 0.1}, seconds=1.5),
    Entry("a", 1, "y", error="Überlauf\nof memory"),
    Entry("b", 0, "z", metrics={"spectral_decay": float("inf")}),
]


@pytest.fixture
def journal(tmp_path) -> Path:
    assert read_journal(tmp_path) == {}
    for entry in ENTRIES:
        append_entry(tmp_path, entry)
    return tmp_path / JOURNAL


def test_the_last_entry_of_a_run_counts(journal, tmp_path) -> None:
    assert list(read_journal(tmp_path).values()) == ENTRIES
    assert len(journal.read_text().splitlines()) == 3
    again = Entry("a", 1, "y", metrics={"map@r": 0.2})
    append_entry(tmp_path, again)
    assert read_journal(tmp_path)["a", 1] == again


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_line_cut_short_was_not_written(journal, tmp_path, cut) -> None:
    """As it is when the power goes while it is written."""
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-cut])
    assert list(read_journal(tmp_path).values()) == ENTRIES[:2]
    append_entry(tmp_path, ENTRIES[2])
    assert journal.read_bytes() == whole


def test_a_damaged_line_is_named(journal, tmp_path) -> None:
    lines = journal.read_text().splitlines()
    journal.write_text("\n".join([lines[0], "{}", lines[2], ""]))
    with pytest.raises(ValueError, match="Line 2 of .*runs.jsonl"):
        read_journal(tmp_path)
