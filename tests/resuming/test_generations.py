import keras
import ml_dtypes
import numpy as np
import pytest

from keras_dml.resuming import resume, states
from keras_dml.resuming.resume import Generations

STATE = {
    "epoch": 3,
    "logs": {"loss": [0.1, float("inf")], "note": None},
    "arrays": [np.arange(6.0).reshape(2, 3), np.array(True)],
}


def written(folder, *epochs: int) -> Generations:
    generations = Generations(folder)
    folder.mkdir(exist_ok=True)
    for epoch in epochs:
        generations.write({**STATE, "epoch": epoch})
    return generations


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_state_round_trips(tmp_path) -> None:
    path, state = written(tmp_path, 3).read()
    assert path.name == "state-1.npz"
    assert state["epoch"] == 3
    assert state["logs"] == STATE["logs"]
    for array, expected in zip(state["arrays"], STATE["arrays"], strict=True):
        assert array.dtype == expected.dtype
        np.testing.assert_array_equal(array, expected)


def test_empty_folder_has_no_state(tmp_path) -> None:
    assert Generations(tmp_path / "none").read() is None


def test_two_generations_are_kept(tmp_path) -> None:
    assert written(tmp_path, *range(12)).read()[1]["epoch"] == 11
    assert names(tmp_path) == ["state-11.npz", "state-12.npz"]


@pytest.mark.parametrize("damage", ["cut", "empty", "changed", "other"])
def test_damaged_state_falls_back_to_the_earlier_one(
    damage, tmp_path, caplog
) -> None:
    generations = written(tmp_path, 1, 2)
    path = tmp_path / "state-2.npz"
    content = bytearray(path.read_bytes())
    if damage == "changed":
        content[content.find(np.float64(4.0).tobytes()) + 7] ^= 1
    path.write_bytes(
        {
            "cut": content[: len(content) // 2],
            "empty": b"",
            "changed": content,
            "other": b"GIF89a",
        }[damage]
    )
    assert generations.read()[1]["epoch"] == 1
    assert len(caplog.records) == 1
    assert "state-2.npz is damaged" in caplog.text
    # Intact states outlive damaged ones.
    generations.write(STATE)
    assert names(tmp_path) == ["state-1.npz", "state-3.npz"]


def test_changed_byte_is_detected_anywhere(tmp_path) -> None:
    generations = written(tmp_path, 1, 2)
    path = tmp_path / "state-2.npz"
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.choice(len(content), 60, replace=False).tolist():
        damaged = bytearray(content)
        damaged[place] ^= 0x55
        path.write_bytes(damaged)
        _, state = generations.read()
        if state["epoch"] == 2:  # The byte is one that no reader uses.
            assert state["logs"] == STATE["logs"]
            np.testing.assert_array_equal(
                state["arrays"][0], STATE["arrays"][0]
            )
        else:
            assert state["epoch"] == 1


def test_damaged_states_alone_raise(tmp_path) -> None:
    generations = written(tmp_path, 1)
    (tmp_path / "state-1.npz").write_bytes(b"")
    with pytest.raises(ValueError, match=r"state-1\.npz, all damaged"):
        generations.read()


def test_state_of_a_later_version_raises(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(resume, "FORMAT", 2)
    generations = written(tmp_path, 1)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"state-1\.npz.*a later version"):
        generations.read()


def test_second_training_in_a_folder_raises(tmp_path) -> None:
    leftover = tmp_path / ".state-3.npz.0123456789abcdef.npz"
    leftover.touch()
    with Generations(tmp_path).lock():
        assert not leftover.exists()
        with (
            pytest.raises(BlockingIOError, match="Another training is using"),
            Generations(tmp_path).lock(),
        ):
            pass


def test_bfloat16_variables_round_trip() -> None:
    value = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    variable = keras.Variable(value, dtype="bfloat16")
    state = states.state_of_variables([variable])
    assert state["values"][0].dtype == np.uint16
    variable.assign([0.0, 0.0])
    states.restore_variables([variable], state)
    np.testing.assert_array_equal(np.asarray(variable), value)
