from pathlib import Path

import pytest

from keras_dml.recipes import RecipeError
from keras_dml.runs.plan import (
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


def test_plan_starts_with_the_first_seed_of_every_recipe(
    recipe, tmp_path
) -> None:
    other = f"{recipe}::name=b::epochs=7::method.loss={{name: triplet}}"
    settings = ["epochs=3", "batches.images_per_class=2"]
    base = tmp_path / "_base.yaml"
    base.write_text("epochs: 2\n")
    plan = read_plan([str(base), recipe, other], 2, tmp_path / "out", settings)
    assert [run.key for run in plan.runs()] == [
        ("small", 0), ("b", 0), ("small", 1), ("b", 1),
    ]  # fmt: skip
    assert plan.runs()[3].folder == tmp_path / "out" / "b" / "seed-1"
    assert plan.baseline == "small"
    assert len({run.digest for run in plan.runs()}) == 4
    first, second = plan.recipes
    assert (first.epochs, second.epochs) == (3, 7)
    assert {x.batches.images_per_class for x in plan.recipes} == {2}
    assert second.method.loss == "triplet"
    assert read_plan([recipe, other], 1, tmp_path, [], "b").baseline == "b"


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        (["", "::epochs=1"], {}, "different names.*::epochs=1::name=small-2"),
        ([""], {"settings": ["seed=3"]}, "--seeds"),
        (["::seed=3"], {}, "--seeds"),
        ([""], {"baseline": "other"}, "baseline='other'.*small"),
        ([""], {"seeds": 0}, "seeds=0"),
        ([], {}, "not only a base"),
    ],
)
def test_unfit_plans_raise(changes, options, message, recipe, tmp_path) -> None:
    base = tmp_path / "_base.yaml"
    base.write_text("epochs: 2\n")
    texts = [str(base), *(f"{recipe}{change}" for change in changes)]
    arguments = {"seeds": 1, "output": tmp_path, **options}
    with pytest.raises((RecipeError, ValueError), match=message):
        read_plan(texts, **arguments)


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


def test_last_entry_of_a_run_counts(journal, tmp_path) -> None:
    assert list(read_journal(tmp_path).values()) == ENTRIES
    assert len(journal.read_text().splitlines()) == 3
    again = Entry("a", 1, "y", metrics={"map@r": 0.2})
    append_entry(tmp_path, again)
    assert read_journal(tmp_path)["a", 1] == again


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_truncated_last_line_is_ignored(journal, tmp_path, cut) -> None:
    """A power failure during a write truncates the line."""
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-cut])
    assert list(read_journal(tmp_path).values()) == ENTRIES[:2]
    append_entry(tmp_path, ENTRIES[2])
    assert journal.read_bytes() == whole


def test_damaged_line_is_named(journal, tmp_path) -> None:
    lines = journal.read_text().splitlines()
    journal.write_text("\n".join([lines[0], "{}", lines[2], ""]))
    with pytest.raises(ValueError, match="Line 2 of .*runs.jsonl"):
        read_journal(tmp_path)
