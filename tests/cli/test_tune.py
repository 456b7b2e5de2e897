import json

import pytest

from tests.cli.test_commands import run
from tests.runs.small_run import METHODS, write_recipe


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("optimizer.learning_rte: [1.0e-4, 1.0e-2]", "Did you mean 'learning"),
        ("{a: [", "space.yaml cannot be read"),
        (None, "space.yaml cannot be read"),
    ],
)
def test_wrong_space_raises_and_leaves_nothing(
    content, message, tmp_path
) -> None:
    recipe, space = write_recipe(tmp_path), tmp_path / "space.yaml"
    if content is not None:
        space.write_text(content)
    folder = tmp_path / "study"
    output = run("tune", str(recipe), "--space", str(space),
                 "--output", str(folder), code=1)  # fmt: skip
    assert message in output
    assert not folder.exists()


@pytest.mark.slow
def test_tune_prints_the_trials(tmp_path) -> None:
    recipe, space = write_recipe(tmp_path), tmp_path / "space.yaml"
    space.write_text(
        "optimizer.learning_rate: {low: 1.0e-4, high: 1.0e-2, log: true}\n"
        "method.loss: [contrastive, {name: triplet, margin: 0.2}]\n"
        "batches.classes_per_batch: [2, 50]\n"
    )
    folder = tmp_path / "study <b>"
    command = ("tune", str(recipe), "--space", str(space), "--set", "epochs=1",
               "--set", METHODS["baseline"], "--output", str(folder),
               "--trials", "4")  # fmt: skip
    output = run(*command)
    assert "small: the best of 4 trials" in output
    assert "complete" in output
    assert f"Next: keras-dml train '{folder / 'best.yaml'}'" in output
    printed = run(*command, "--json")
    answer, _ = json.JSONDecoder().raw_decode(printed[printed.index("{") :])
    assert len(answer["trials"]) == 4
    values = [x["map@r"] for x in answer["trials"] if x["state"] == "complete"]
    assert values == sorted(values, reverse=True)
