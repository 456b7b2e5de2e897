"""`keras-dml report` and `keras-dml figures`."""

import csv
import json
import shutil

import pytest
from click.testing import CliRunner

from keras_dml.cli import main

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(run_of):
    return run_of("divide_and_conquer")


def test_report_writes_a_page(trained) -> None:
    command = ["report", str(trained), "--queries", "3", "--json"]
    ended = CliRunner().invoke(main, command, catch_exceptions=False)
    page = trained / "report.html"
    assert f"Wrote {page} (" in ended.stderr
    assert json.loads(ended.stdout) == {
        "page": str(page), "bytes": page.stat().st_size,
    }  # fmt: skip
    assert "3 of 36 test images" in page.read_text()


def test_figures_come_with_their_numbers(trained, tmp_path) -> None:
    other = tmp_path / "other"
    shutil.copytree(trained, other)
    folder = tmp_path / "figures"
    command = ("figures", str(trained), str(other), "--output", str(folder),
               "--format", "svg", "--metric", "val_map@r",
               "--json")  # fmt: skip
    ended = CliRunner().invoke(main, command, catch_exceptions=False)
    names = {path.stem for path in folder.glob("*.svg")}
    assert {"cosines", "clusters", "retrieval", "recall_curves"} <= names
    assert names == {path.stem for path in folder.glob("*.csv")}
    drawn = json.loads(ended.stdout)["figures"]
    assert {x["file"] for x in drawn} == set(map(str, folder.glob("*.svg")))
    for x in drawn:
        assert f"{x['file']}: {x['caption']}\n" in ended.stderr
    with (folder / "recall_curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["run"] for row in rows} == {str(trained), str(other)}
