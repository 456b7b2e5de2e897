"""The page of a study, and what `keras-dml tune` prints of it."""

import csv
import io
from pathlib import Path

import pytest

from keras_dml import recipes
from keras_dml.reports import study, study_report
from keras_dml.runs import Tuned, load_study
from keras_dml.runs.tuning.search import _begin, _csv
from keras_dml.runs.tuning.study import ERROR, open_study, short_names, shown

optuna = pytest.importorskip("optuna")

RATE, LOSS = "optimizer.learning_rate", "method.loss"
TRIPLET = {"name": "triplet", "margin": 0.2}
SPACE = {
    RATE: {"low": 1e-4, "high": 1e-2, "log": True},
    LOSS: ["contrastive", TRIPLET],
}


@pytest.fixture(scope="module")
def tuned(tmp_path_factory) -> Tuned:
    """Two complete trials, one pruned after an epoch, two that failed."""
    folder = tmp_path_factory.mktemp("a") / "a study"
    _begin(folder, recipes.load("glyphs/baseline"), SPACE)
    log = optuna.distributions.FloatDistribution(1e-4, 1e-2, log=True)
    loss = optuna.distributions.CategoricalDistribution(
        ("contrastive", "{name: triplet, margin: 0.2}")
    )
    no = {ERROR: "No <b>."}
    trials = [
        ("COMPLETE", 0.4, 1e-3, 1, {1: 0.4, 2: 0.3}, {}),
        ("FAIL", None, 1e-3, 1, {}, no),
        ("COMPLETE", 0.5, 0.0012345678, 1, {1: 0.2, 2: 0.5}, {}),
        ("FAIL", None, 1e-4, 1, {}, no),
        ("PRUNED", 0.1, 1e-2, 0, {1: 0.1}, {}),
    ]
    open_study(folder).add_trials(
        optuna.trial.create_trial(
            state=optuna.trial.TrialState[state],
            value=value,
            params={RATE: rate, LOSS: loss.choices[choice]},
            distributions={RATE: log, LOSS: loss},
            intermediate_values=curve,
            user_attrs=attributes,
        )
        for state, value, rate, choice, curve, attributes in trials
    )
    return load_study(folder)


def test_settings_are_shown_as_they_are_said() -> None:
    values = (0.0012345678, 8, "contrastive", TRIPLET, {"name": "circle"}, None)
    assert [shown(x) for x in values] == [
        "0.001235", "8", "contrastive", "triplet (margin=0.2)", "circle",
        "None",
    ]  # fmt: skip
    keys = [RATE, "method.name", "backbone.name", "a.margin", "b.margin"]
    assert short_names(keys) == ["learning_rate", *keys[1:]]


def test_the_table_of_all_trials_has_all_digits(tuned: Tuned) -> None:
    rows = list(csv.DictReader(io.StringIO(_csv(tuned))))
    assert [x["trial"] for x in rows] == ["2", "0", "4", "1", "3"]
    assert rows[0][RATE] == "0.0012345678"
    assert rows[0][LOSS] == '{"name": "triplet", "margin": 0.2}'
    assert rows[3]["error"] == "No <b>."
    assert rows[3]["map@r"] == ""


def test_what_is_printed_fits_a_window(tuned: Tuned) -> None:
    header, first, *_ = tuned.table()
    assert header == [
        "trial",
        "state",
        "map@r",
        "settings",
        "epochs",
        "seconds",
    ]
    assert first == [
        "2", "complete", "0.5000",
        "learning_rate=0.001235, loss=triplet (margin=0.2)", "2", "–",
    ]  # fmt: skip


def test_the_best_trial_has_its_command(tuned: Tuned) -> None:
    best = study._best(tuned)
    assert f"keras-dml train &#x27;{tuned.folder}/best.yaml&#x27;" in best
    assert ">0.001235</td>" in best
    assert "triplet (margin=0.2)" in best


def test_an_error_is_said_once(tuned: Tuned) -> None:
    assert study._errors(tuned) == (
        "<dl><dt>Trials 1, 3</dt><dd>No &lt;b&gt;.</dd></dl>"
    )


def test_numbers_are_on_the_right_and_texts_on_the_left() -> None:
    table = study._table(
        [["a_b", "c"], ["1e-4", "x"], ["–", "1 <"], ["5%", "2"]]
    )
    assert "<th scope=col>a_<wbr>b</th>" in table
    assert '<th scope=col class="text">c</th>' in table
    assert '<td>–</td><td class="text">1 &lt;</td>' in table


def test_the_page_has_a_figure_of_each_setting(tuned: Tuned) -> None:
    text = study_report(tuned.folder).read_text()
    assert text.count("<svg") == 2 + len(SPACE)
    assert f"map@r of complete trials by {RATE}." in text
    assert "5 trials (2 complete, 1 pruned, 2 failed)" in text
    assert "At least four complete trials" in text
    assert text.count("<title>") == 1 and "#555555" not in text
    assert not Path("report.html").exists()
