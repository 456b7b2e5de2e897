"""TensorFlow beside another backend; `tests.model.without_tensorflow` has
what works where it is missing."""

import sys
from types import SimpleNamespace

import pytest

from keras_dml.utils.tensorflow import _TensorFlow


@pytest.mark.parametrize("error", [None, RuntimeError("devices are in use")])
def test_lazy_tensorflow_hides_gpus_when_imported(error, monkeypatch) -> None:
    hidden = []

    def hide(*args: object) -> None:
        hidden.append(args)
        if error is not None:
            raise error

    config = SimpleNamespace(set_visible_devices=hide)
    module = SimpleNamespace(config=config, constant=len)
    monkeypatch.setitem(sys.modules, "stand_in", module)
    tf = _TensorFlow("stand_in")
    assert not hidden
    assert tf.constant is tf.constant is len
    assert hidden == [([], "GPU")]


def test_missing_tensorflow_is_named() -> None:
    with pytest.raises(ImportError, match="pip install tensorflow"):
        _TensorFlow("no_such_module").constant  # noqa: B018
