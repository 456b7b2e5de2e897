import pytest
from click.testing import CliRunner

from keras_dml.cli import main


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture(scope="module")
def trained(run_of):
    return run_of("divide_and_conquer")


@pytest.mark.slow
def test_report_writes_a_page(trained, tmp_path) -> None:
    output = run("report", str(trained), "--queries", "3")
    assert f"Wrote {trained / 'report.html'}" in output
    text = (trained / "report.html").read_text()
    assert "3 of 36 test images" in text
    other = tmp_path / "deep" / "page.html"
    run("report", str(trained), "--output", str(other))
    assert other.exists()


def test_report_of_what_is_no_run(tmp_path) -> None:
    for command in ("report", "figures"):
        output = run(command, str(tmp_path), code=1)
        assert "not the folder of a run" in output
        assert not list(tmp_path.iterdir())
