import json

import pytest
from click.testing import CliRunner

from keras_dml.cli import main
from tests.cli.test_commands import run


@pytest.fixture(scope="module")
def trained(run_of):
    return run_of("divide_and_conquer")


@pytest.mark.slow
def test_report_writes_a_page(trained) -> None:
    command = ["report", str(trained), "--queries", "3", "--json"]
    ended = CliRunner().invoke(main, command, catch_exceptions=False)
    page = trained / "report.html"
    assert f"Wrote {page} (" in ended.stderr
    assert json.loads(ended.stdout) == {
        "page": str(page), "bytes": page.stat().st_size,
    }  # fmt: skip
    assert "3 of 36 test images" in page.read_text()


def test_report_of_what_is_no_run(tmp_path) -> None:
    for command in ("report", "figures"):
        output = run(command, str(tmp_path), code=1)
        assert "not the folder of a run" in output
        assert not list(tmp_path.iterdir())
