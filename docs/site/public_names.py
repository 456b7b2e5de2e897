"""The public names of the package as griffe reads them, without an import."""

import ast
from collections.abc import Iterator
from typing import Any

import griffe

PUBLISHING = {"declare", "network", "register"}
"""Decorators of what is an attribute of its package without a line there."""


class PublicNames(griffe.Extension):
    """Adds what the package makes while it is imported."""

    def on_attribute_instance(
        self, *, node: Any, attr: griffe.Attribute, **_: Any
    ) -> None:
        """`name = functional("name", Class)` has a docstring with a link."""
        match getattr(node, "value", None):
            case ast.Call(
                func=ast.Name(id="functional"), args=[_, ast.Name(id=loss)]
            ):
                attr.docstring = griffe.Docstring(
                    f"The (B,) values of [`{loss}`][{attr.module.path}.{loss}]"
                    ", without an object. Tensors go by position; arguments "
                    "are those of the class, but for those that create "
                    "variables.",
                    parent=attr,
                )

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """`methods.bier` is `methods._bier.bier`, by `__getattr__`."""
        if pkg.path != "keras_dml":
            return
        for package in (pkg["methods"], pkg["backbones"]):
            for value in list(published(package)):
                if value.name not in package.members:
                    package[value.name] = griffe.Alias(value.name, value)
                    package.exports.append(value.name)


def published(package: griffe.Module) -> Iterator[griffe.Object]:
    """What the private modules of a package declare or register."""
    for module in package.modules.values():
        if module.is_alias or not module.name.startswith("_"):
            continue
        for value in [*module.functions.values(), *module.classes.values()]:
            if value.is_alias:
                continue
            names = (x.callable_path for x in value.decorators)
            if any(x.rpartition(".")[2] in PUBLISHING for x in names):
                yield value


def public(package: griffe.Module) -> Iterator[griffe.Object | griffe.Alias]:
    """What `__all__` of a package and of those below it names."""
    for name in package.exports or ():
        yield package[getattr(name, "name", name)]
    for module in package.modules.values():
        if not module.is_alias:
            yield from public(module)


def load(root: str) -> griffe.Module:
    return griffe.load(
        "keras_dml",
        search_paths=[root],
        extensions=griffe.load_extensions(PublicNames),
        resolve_aliases=True,
    )
