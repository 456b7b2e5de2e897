"""Methods are declared where they are defined, and found by name."""

import sys
import textwrap

import pytest

from keras_dml import methods
from keras_dml.methods.declaration import find


@pytest.mark.parametrize("name", methods.METHODS)
def test_every_method_is_an_attribute(name) -> None:
    assert getattr(methods, name) is methods.METHODS[name].value


def test_module_in_the_folder_declares_a_method(tmp_path, monkeypatch) -> None:
    file = tmp_path / "_four.py"
    file.write_text(
        textwrap.dedent(
            """
            from keras_dml import methods

            @methods.declare("four", "what four does")
            def four(backbone="small_convnet", **kwargs):
                return methods.baseline(backbone, embedding_dim=4, **kwargs)
            """
        )
    )
    monkeypatch.setattr(methods.METHODS, "_entries", dict(methods.METHODS))
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
    try:
        methods.import_modules("keras_dml.methods")
        assert methods.METHODS["four"].value is methods.four
    finally:
        sys.modules.pop("keras_dml.methods._four", None)


def test_unknown_method_raises() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'bayer'"):
        _ = methods.bayer
    with pytest.raises(ValueError, match="no method 'dclm'.*'dcml'"):
        _ = methods.METHODS["dclm"]


def test_find_returns_factory_and_traits() -> None:
    factory, traits = find("abe")
    assert factory is methods.abe
    assert traits.extra_keys == {"pair_batches"}
    assert find("keras_dml.methods:abe") == (factory, traits)
    assert find("keras_dml.methods:diva")[1].part == "task"
