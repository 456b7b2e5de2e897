import pytest
from click.testing import CliRunner

from keras_dml import recipes, runs
from keras_dml.cli import main
from tests.runs.small_run import write_recipe

pytestmark = pytest.mark.slow


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    settings = ("epochs=1", "evaluation.metrics=[recall@1, map@r]")
    recipe = recipes.load(write_recipe(folder), settings)
    runs.train(recipe, folder / "run", verbose=0)
    return folder / "run"


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
