"""Configs derived from constructor arguments."""

import keras
import pytest

from keras_dml import losses
from keras_dml.utils.serialization import SerializableLayer, parameters_of


@keras.saving.register_keras_serializable(package="test_serialization")
class Owner(SerializableLayer):
    def __init__(self, children, loss=None, sizes=(1, 2), **kwargs):
        super().__init__(**kwargs)
        self.children = list(children)
        self.loss = loss
        self.sizes = tuple(sizes)


@keras.saving.register_keras_serializable(package="test_serialization")
class Derived(Owner):
    def __init__(self, children, initializer="zeros", **kwargs):
        super().__init__(children, **kwargs)
        self.initializer = keras.initializers.get(initializer)


def derived() -> Derived:
    child = keras.layers.Dense(3, name="child")
    child.build((None, 2))
    return Derived(
        [child], "ones", loss=losses.TripletLoss(0.3), sizes=(4, 5), name="own"
    )


def test_parameters_include_all_bases_but_keras() -> None:
    names = ["children", "initializer", "loss", "sizes"]
    assert list(parameters_of(Derived)) == names


def test_nested_objects_are_restored() -> None:
    layer = derived()
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(layer)
    )
    assert again.get_config() == layer.get_config()
    assert again.name == "own" and again.sizes == (4, 5)
    assert isinstance(again.initializer, keras.initializers.Ones)
    assert isinstance(again.loss, losses.TripletLoss)
    assert again.loss.margin == 0.3


def test_nested_layers_are_left_for_their_owner_to_build() -> None:
    layer = derived()
    assert "build_config" not in layer.get_config()["children"][0]
    again = Derived.from_config(layer.get_config())
    assert again.children[0].units == 3 and not again.children[0].built


def test_argument_that_is_not_stored_raises() -> None:
    class Forgetful(SerializableLayer):
        def __init__(self, size, **kwargs):
            super().__init__(**kwargs)

    with pytest.raises(AttributeError, match="size"):
        Forgetful(3).get_config()
