import pytest

from keras_dml.runs.benchmark.journal import Entry, Journal

ENTRIES = [
    Entry("a", 0, "x", metrics={"map@r": 0.1}, seconds=1.5),
    Entry("a", 1, "y", error="Überlauf\nof memory"),
    Entry("b", 0, "z", metrics={"spectral_decay": float("inf")}),
]


@pytest.fixture
def journal(tmp_path) -> Journal:
    journal = Journal(tmp_path)
    assert journal.entries() == {}
    for entry in ENTRIES:
        journal.append(entry)
    return journal


def test_entries_are_read_back(journal, tmp_path) -> None:
    assert list(Journal(tmp_path).entries().values()) == ENTRIES
    assert len(journal.path.read_text().splitlines()) == 3


def test_the_last_entry_of_a_run_counts(journal) -> None:
    again = Entry("a", 1, "y", metrics={"map@r": 0.2})
    journal.append(again)
    assert journal.entries()["a", 1] == again


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_line_cut_short_was_not_written(journal, cut) -> None:
    """As it is when the power goes while it is written."""
    whole = journal.path.read_bytes()
    journal.path.write_bytes(whole[:-cut])
    assert list(journal.entries().values()) == ENTRIES[:2]
    journal.append(ENTRIES[2])
    assert journal.path.read_bytes() == whole


def test_a_damaged_line_is_named(journal) -> None:
    lines = journal.path.read_text().splitlines()
    journal.path.write_text("\n".join([lines[0], "{}", lines[2], ""]))
    with pytest.raises(ValueError, match="Line 2 of .*runs.jsonl"):
        journal.entries()
