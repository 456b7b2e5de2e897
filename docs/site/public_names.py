"""The public names of the package as griffe reads them, without an import."""

import ast
import re
from collections.abc import Iterator
from typing import Any

import griffe

PUBLISHING = {"methods": {"declare", "register"}, "backbones": {"network"}}
"""Decorators of what is an attribute of a package without a line there."""

FUNCTIONAL = re.compile(r"functional\(['\"]\w+['\"], (\w+)\)")
SESSION = re.compile(r"^Example:(?=\n +>>>)", re.M)
CALL = re.compile(r"^Example:\n +`(?!``)(?:.+\n?)+\n*", re.M)


class PublicNames(griffe.Extension):
    """Adds what the package makes while it is imported."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        if pkg.path != "keras_dml":
            return
        for name, decorators in PUBLISHING.items():
            package = pkg[name]
            for value in list(published(package, decorators)):
                if value.name not in package.members:
                    package[value.name] = griffe.Alias(value.name, value)
                    package.exports.append(value.name)
        package = pkg["losses"]
        for attribute in list(package.attributes.values()):
            if attribute.is_alias:
                continue
            if found := FUNCTIONAL.fullmatch(str(attribute.value)):
                made = function_of(found[1], attribute, package, pkg)
                package.set_member(attribute.name, made)
        for module in package.modules.values():
            for value in module.classes.values():
                if value.docstring and not value.is_alias:
                    value.docstring.value = shown(value.docstring.value)


def shown(docstring: str) -> str:
    """With a session as an example to griffe, and no call of one line.

    Pages of losses have a program in its place.
    """
    docstring = SESSION.sub("Examples:", docstring)
    return CALL.sub("", docstring)


def published(
    package: griffe.Module, decorators: set[str]
) -> Iterator[griffe.Object]:
    """`methods.bier` is `methods._bier.bier`, by `__getattr__`."""
    for module in package.modules.values():
        if module.is_alias or not module.name.startswith("_"):
            continue
        for value in [*module.functions.values(), *module.classes.values()]:
            if value.is_alias:
                continue
            names = (x.callable_path for x in value.decorators)
            if any(x.rpartition(".")[2] in decorators for x in names):
                yield value


def function_of(
    loss: str,
    attribute: griffe.Attribute,
    package: griffe.Module,
    root: griffe.Module,
) -> griffe.Function:
    """What `losses.functional` makes of a loss: see there."""
    classes = [package[loss], *package[loss].mro()]
    on_proxies = any(x.name == "ProxyLoss" for x in classes)
    method = "ProxyLoss.values" if on_proxies else "MetricLoss.per_example"
    _, *tensors = root[f"losses.{method}"].parameters
    unused = ast.literal_eval(str(root["losses.combined._NO_ARGUMENTS"].value))
    unused |= {"self", "seed"} if on_proxies else {"self"}
    arguments: dict[str, griffe.Parameter] = {}
    for base in classes:
        own = getattr(base.members.get("__init__"), "parameters", ())
        for parameter in own:
            if not parameter.name.startswith("*"):
                arguments.setdefault(parameter.name, parameter)
        if own and own[-1].kind is not griffe.ParameterKind.var_keyword:
            break
    keywords = [
        griffe.Parameter(
            x.name,
            annotation=x.annotation,
            kind=griffe.ParameterKind.keyword_only,
            default=x.default,
        )
        for x in arguments.values()
        if x.name not in unused
        and x.kind is not griffe.ParameterKind.var_keyword
    ]
    return griffe.Function(
        attribute.name,
        parameters=griffe.Parameters(*tensors, *keywords),
        returns="Tensor",
        lineno=attribute.lineno,
        endlineno=attribute.endlineno,
        docstring=griffe.Docstring(
            f"The (B,) values of [`{loss}`][{package.path}.{loss}], without "
            "an object.",
        ),
        parent=package,
    )


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
