"""Tests of `OutputFolder`."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from keras_dml.cli import main
from keras_dml.cli.common import OutputFolder


def test_names_of_files_are_refused(tmp_path: Path) -> None:
    folder = OutputFolder()
    for name in ("embeddings.parquet", "s3://bucket/Gallery.CSV"):
        with pytest.raises(click.BadParameter, match="Use a name such as '"):
            folder.convert(name, None, None)
    for name in ("runs/v1.2", "s3://bucket/gallery", str(tmp_path)):
        assert folder.convert(name, None, None) == name


def test_a_folder_that_exists_may_have_any_name(tmp_path: Path) -> None:
    path = tmp_path / "old.csv"
    path.mkdir()
    assert OutputFolder().convert(str(path), None, None) == str(path)


@pytest.mark.parametrize(
    "command",
    [
        ("embed", ".", "."),
        ("index", ".", ".", "--output"),
        ("train", "glyphs/baseline", "--output"),
        ("tune", "glyphs/baseline", "--output"),
        ("benchmark", "glyphs/baseline", "--output"),
    ],
)
def test_commands_refuse_before_they_work(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, [*command, "x.csv"])
    assert result.exit_code == 2
    assert "named like a file" in result.output
