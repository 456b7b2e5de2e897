"""The functions that `losses.functional` makes of losses, for griffe."""

import ast
from typing import Any

import griffe


class FunctionalLosses(griffe.Extension):
    """Gives `name = functional("name", Class)` a docstring with a link."""

    def on_attribute_instance(
        self, *, node: Any, attr: griffe.Attribute, **_: Any
    ) -> None:
        match getattr(node, "value", None):
            case ast.Call(
                func=ast.Name(id="functional"), args=[_, ast.Name(id=loss)]
            ):
                attr.docstring = griffe.Docstring(
                    f"The (B,) values of [`{loss}`][keras_dml.losses.{loss}]. "
                    "Takes its tensors by position and the arguments of the "
                    "class, without those that create variables, by keyword.",
                    parent=attr,
                )
                attr.value = None
