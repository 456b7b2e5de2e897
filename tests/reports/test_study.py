"""The page of a study, and what `keras-dml tune` prints of it."""

import csv
import io

import pytest

from keras_dml import recipes
from keras_dml.cli.commands.tune import _with_settings_together
from keras_dml.reports import study
from keras_dml.reports.study_figures import (
    setting_figure,
    trial_curves,
    trial_history,
)
from keras_dml.runs import Tuned
from keras_dml.runs.tuning import Choices, Range, Space, Trial
from keras_dml.runs.tuning.search import _csv
from keras_dml.runs.tuning.study import short_names, shown

RATE, LOSS = "optimizer.learning_rate", "method.loss"
TRIPLET = {"name": "triplet", "margin": 0.2}


@pytest.fixture
def tuned(tmp_path) -> Tuned:
    """Two complete trials, one pruned after an epoch, two that failed."""
    space = Space(
        {
            RATE: Range(1e-4, 1e-2, log=True),
            LOSS: Choices(("contrastive", TRIPLET)),
        }
    )
    rate = 0.0012345678
    trials = [
        Trial(
            0, "complete", 0.4, {RATE: 1e-3, LOSS: TRIPLET}, {1: 0.4, 2: 0.3}
        ),
        Trial(1, "failed", None, {RATE: 1e-3, LOSS: TRIPLET}, error="No <b>."),
        Trial(
            2,
            "complete",
            0.5,
            {RATE: rate, LOSS: TRIPLET},
            {1: 0.2, 2: 0.5},
            9.0,
        ),
        Trial(3, "failed", None, {RATE: 1e-4, LOSS: TRIPLET}, error="No <b>."),
        Trial(4, "pruned", 0.1, {RATE: 1e-2, LOSS: "contrastive"}, {1: 0.1}),
    ]
    return Tuned(
        tmp_path / "a study", recipes.load("glyphs/baseline"), space, trials
    )


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
    header, first, *_ = _with_settings_together(tuned.table())
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
        "learning_rate=0.001235, loss=triplet (margin=0.2)", "2", "9.0",
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


def test_trials_of_one_epoch_are_seen(tuned: Tuned) -> None:
    [axes] = trial_curves(tuned).axes
    marked = [x for x in axes.lines if x.get_marker() == "s"]
    assert [x.get_xydata().tolist() for x in marked] == [[[1.0, 0.1]]]


def test_the_best_so_far_goes_on_to_the_last_trial(tuned: Tuned) -> None:
    [axes] = trial_history(tuned).axes
    [best] = axes.lines
    assert best.get_xydata().tolist() == [[0, 0.4], [2, 0.5], [4, 0.5]]


def test_choices_are_named_below_the_axis(tuned: Tuned) -> None:
    [axes] = setting_figure(tuned, LOSS).axes
    names = [x.get_text() for x in axes.get_xticklabels()]
    assert names == ["contrastive", "triplet\n(margin=0.2)"]
