import json

import pytest

from tests.cli.test_commands import run
from tests.runs.small_run import METHODS, write_recipe


def test_a_wrong_space_is_one_message_and_leaves_nothing(tmp_path) -> None:
    recipe, space = write_recipe(tmp_path), tmp_path / "space.yaml"
    space.write_text("optimizer.learning_rte: {low: 1.0e-4, high: 1.0e-2}")
    folder = tmp_path / "study"
    output = run("tune", str(recipe), "--space", str(space),
                 "--output", str(folder), code=1)  # fmt: skip
    assert "Did you mean 'learning_rate'" in output
    assert not folder.exists()


@pytest.mark.slow
def test_tune_prints_the_trials_and_writes_their_page(
    tmp_path, monkeypatch
) -> None:
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
    assert "small: 4 trials" in output
    assert "[4/4] trial 3: optimizer.learning_rate=" in output
    assert output.count(" left\n") == 3
    assert "the best so far" in output
    assert "complete" in output
    assert "best.yaml" in output
    page = (folder / "report.html").read_text()
    assert page.count("<svg") == 5
    assert "classes held out of training" in page
    answered = run(*command, "--json")
    found, _ = json.JSONDecoder().raw_decode(answered[answered.index("{") :])
    assert len(found["trials"]) == 4
    assert found["best"]["value"] == max(
        x["value"] for x in found["trials"] if x["state"] == "complete"
    )
