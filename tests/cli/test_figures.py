import csv
import shutil

import pytest

from tests.cli.test_report import run, trained

__all__ = ["trained"]

pytestmark = pytest.mark.slow


def test_figures_come_with_their_numbers(trained, tmp_path) -> None:
    other = tmp_path / "other"
    shutil.copytree(trained, other)
    folder = tmp_path / "figures"
    output = run("figures", str(trained), str(other), "--output", str(folder),
                 "--format", "svg", "--metric", "val_map@r")  # fmt: skip
    names = {path.stem for path in folder.glob("*.svg")}
    assert {"cosines", "clusters", "retrieval", "recall_curves"} <= names
    assert names == {path.stem for path in folder.glob("*.csv")}
    assert all(f"{name}.svg: " in output for name in names)
    with (folder / "recall_curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["run"] for row in rows} == {str(trained), str(other)}


def test_unknown_metric_is_named(trained, tmp_path) -> None:
    output = run("figures", str(trained), str(trained), "--output",
                 str(tmp_path), "--metric", "val_recal@1", code=1)  # fmt: skip
    assert "val_recal@1" in output
