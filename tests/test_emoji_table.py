"""The script that makes the table of emoji."""

import csv
from pathlib import Path

import pytest

from tests.benchmarks import emoji_table

CLASSES = [("train", f"group{i % 5}", f"a{i}") for i in range(20)]
CLASSES += [("test", "other", f"b{i}") for i in range(4)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [("split", "subgroup", "class"), *CLASSES]
    with (tmp_path / "classes.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    for _, _, name in CLASSES:
        (tmp_path / name).mkdir()
        for style in "xy":
            (tmp_path / name / f"{style}.png").touch()
    return tmp_path


def table(folder: Path, *options: str, monkeypatch) -> list[dict[str, str]]:
    output = folder / "emoji.csv"
    arguments = ["", str(folder), str(output), *options]
    monkeypatch.setattr("sys.argv", arguments)
    emoji_table.main()
    with output.open(newline="") as file:
        return list(csv.DictReader(file))


def test_table_has_a_row_for_every_picture(folder: Path, monkeypatch) -> None:
    rows = table(folder, monkeypatch=monkeypatch)
    assert len(rows) == 2 * len(CLASSES)
    assert set(rows[0]) == set(emoji_table.COLUMNS)
    for row in rows:
        assert Path(row["path"]).is_file()
        assert (row["split"], row["subgroup"], row["label"]) in CLASSES


def test_training_takes_whole_subgroups_until_enough(
    folder, monkeypatch
) -> None:
    rows = table(folder, "--classes", "9", monkeypatch=monkeypatch)
    train = {x["label"] for x in rows if x["split"] == "train"}
    groups = {x["subgroup"] for x in rows if x["split"] == "train"}
    assert len(train) == 12 and len(groups) == 3
    assert len({x["label"] for x in rows if x["split"] == "test"}) == 4
