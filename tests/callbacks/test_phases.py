import pytest

from keras_dml.callbacks.recluster import check_phases, default_phases, phase_at


@pytest.mark.parametrize(
    ("epochs", "merged"), [(1, 0), (2, 1), (5, 1), (8, 2), (50, 10)]
)
def test_default_merges_for_the_last_fifth(epochs: int, merged: int) -> None:
    phases = default_phases(epochs)
    losses = [phase_at(phases, epoch).loss for epoch in range(epochs)]
    assert losses == ["sliced"] * (epochs - merged) + ["full"] * merged


def test_phases_follow_one_another_as_in_the_released_code() -> None:
    phases = check_phases(
        [[2, "sliced", "clusters"], (4, "full", "clusters"),
         (None, "full", "all")]
    )  # fmt: skip
    states = [phase_at(phases, epoch)[1:] for epoch in range(5)]
    assert states == [
        ("sliced", "clusters"), ("sliced", "clusters"),
        ("full", "clusters"), ("full", "clusters"), ("full", "all"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "phases",
    [
        [],
        [(3, "sliced", "clusters")],
        [(None, "full", "all"), (None, "full", "all")],
        [(4, "sliced", "all"), (2, "full", "all"), (None, "full", "all")],
        [(None, "whole", "all")],
        [(None, "full", "everything")],
        [(None, "full")],
        ["full"],
    ],
)
def test_unfit_phases_raise(phases) -> None:
    with pytest.raises(ValueError, match="`phases` of Recluster"):
        check_phases(phases)
