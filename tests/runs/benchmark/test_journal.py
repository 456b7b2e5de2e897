import pytest

from keras_dml.runs.benchmark.plan import (
    JOURNAL,
    Entry,
    append_entry,
    read_journal,
)

ENTRIES = [
    Entry("a", 0, "x", metrics={"map@r": 0.1}, seconds=1.5),
    Entry("a", 1, "y", error="Überlauf\nof memory"),
    Entry("b", 0, "z", metrics={"spectral_decay": float("inf")}),
]


@pytest.fixture(autouse=True)
def journal(tmp_path) -> None:
    assert read_journal(tmp_path) == {}
    for entry in ENTRIES:
        append_entry(tmp_path, entry)


def test_the_last_entry_of_a_run_counts(tmp_path) -> None:
    assert list(read_journal(tmp_path).values()) == ENTRIES
    assert len((tmp_path / JOURNAL).read_text().splitlines()) == 3
    again = Entry("a", 1, "y", metrics={"map@r": 0.2})
    append_entry(tmp_path, again)
    assert read_journal(tmp_path)["a", 1] == again


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_line_cut_short_was_not_written(tmp_path, cut) -> None:
    """As it is when the power goes while it is written."""
    path = tmp_path / JOURNAL
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    assert list(read_journal(tmp_path).values()) == ENTRIES[:2]
    append_entry(tmp_path, ENTRIES[2])
    assert path.read_bytes() == whole


def test_a_damaged_line_is_named(tmp_path) -> None:
    path = tmp_path / JOURNAL
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "{}", lines[2], ""]))
    with pytest.raises(ValueError, match="Line 2 of .*runs.jsonl"):
        read_journal(tmp_path)
