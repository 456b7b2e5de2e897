"""Registries: things found by name, each declared once, where it is defined."""

import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any, Generic, TypeVar

from keras_dml.utils.arguments import did_you_mean
from keras_dml.utils.trust import import_named

T = TypeVar("T")


@dataclass(frozen=True)
class Paper:
    """Where something was published, for instance at the venue "CVPR 2019"."""

    title: str
    authors: str
    venue: str
    url: str = ""

    def __str__(self) -> str:
        return f'{self.authors}, "{self.title}", {self.venue}'


@dataclass(frozen=True)
class Entry(Generic[T]):
    """One thing in a registry."""

    name: str  # What recipes, commands and messages call it.
    value: T  # The class or function itself.
    definition: str  # What it is, in one line.
    paper: Paper | None = None  # Where it was published, if anywhere.
    # What else its kind declares, by name.
    details: Mapping[str, Any] = field(default_factory=dict)


class Registry(Mapping[str, Entry[T]]):
    """Things of one kind, by name.

    Args:
        kind: What messages call such a thing: "loss", "method".

    Example:
        ```python
        LOSSES = Registry("loss")

        @LOSSES.register("triplet", "positives closer than negatives")
        class TripletLoss(PairLoss): ...
        ```
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, Entry[T]] = {}

    def register(
        self,
        name: str,
        definition: str = "",
        paper: Paper | None = None,
        **details: Any,
    ) -> Callable[[T], T]:
        """A decorator that registers a value and returns it unchanged.

        Arguments are those of `Entry`. By default the definition is the
        first line of the docstring after its name and colon, and the paper the
        first one under "Reference:". A name that something else has is
        a ValueError.
        """

        def enter(value: T) -> T:
            old = self._entries.get(name)
            # A module that runs again, as a notebook's cell, defines it anew.
            if old is not None and any(
                getattr(old.value, x, None) != getattr(value, x, 0)
                for x in ("__module__", "__qualname__")
            ):
                raise ValueError(
                    f"The {self.kind} {name!r} is already registered as "
                    f"{old.value!r}. Received: {value!r}. Use another name."
                )
            line = (inspect.getdoc(value) or "").partition("\n")[0]
            whole, _, after_name = line.removesuffix(".").partition(": ")
            self.add(
                Entry(
                    name,
                    value,
                    definition or after_name or whole[:1].lower() + whole[1:],
                    paper or cited_paper(value),
                    details,
                )
            )
            return value

        return enter

    def add(self, entry: Entry[T]) -> None:
        """Adds an entry. Registries of a kind may check it or do more."""
        self._entries[entry.name] = entry

    def __getitem__(self, name: str) -> Entry[T]:
        """The entry of a name, or of "package.module:name", which is imported.

        A ValueError names the nearest known name if there is none.
        """
        module, colon, local_name = str(name).rpartition(":")
        if colon:
            name = local_name
            import_own(self.kind, name, module)
        if name not in self._entries:
            names = self.known_as(name)
            same = [x for x in names if _simplify(x) == _simplify(name)]
            hint = f", which is {' or '.join(map(repr, names))} here{_SEE}"
            if same:  # But for underscores, capitals or "Loss".
                hint = f". Did you mean {same[0]!r}?"
            if 0 < len(names) < 3:
                raise ValueError(f"There is no {self.kind} {name!r}{hint}")
            check_known(self.kind, name, self._entries)
        return self._entries[name]

    def known_as(self, name: str) -> list[str]:
        """Names of entries that other libraries or their class call `name`."""
        return [
            entry.name
            for entry in self._entries.values()
            if _simplify(name) in names_elsewhere(entry.value)
        ]

    def get(self, name: str, default: Any = None) -> Any:
        return self._entries.get(name, default)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def __len__(self) -> int:
        return len(self._entries)


_CITATION = re.compile(
    r'(?P<authors>[^"]+), "(?P<title>[^"]+)", (?P<venue>[^,;.]+)'
)


def cited_paper(value: Any) -> Paper | None:
    """The first paper under "Reference:" in a docstring, if there is one.

    It reads `Authors, "Title", Venue Year, where in it, https://address.`
    """
    _, _, section = (inspect.getdoc(value) or "").partition("\nReference:\n")
    text = " ".join(section.partition("\n\n")[0].split())
    citation = _CITATION.match(text)
    if citation is None:
        return None
    address = re.search(r"https?://[^\s;]+", text.partition("; ")[0])
    return Paper(
        **citation.groupdict(), url=address[0].rstrip(".,") if address else ""
    )


def import_own(kind: str, name: str, module: str) -> None:
    """Imports the module of a user that registers something by name."""
    try:
        import_named(module)
    except ImportError as error:
        raise ValueError(
            f"The {kind} {name!r} belongs to the module {module!r}, which "
            f"cannot be imported: {error}. Is its folder in PYTHONPATH?"
        ) from error


def check_known(kind: str, name: str, names: Iterable[str]) -> None:
    """Raises `ValueError` naming the nearest known name, or else all."""
    names = sorted(names)
    if name not in names:
        listing = f" Known are: {', '.join(names)}."
        hint = did_you_mean(name, names) or listing
        raise ValueError(f"There is no {kind} {name!r}.{hint}")


_SEE = '; see "Also known as" in its documentation.'


def no_attribute(module: str, name: str) -> AttributeError:
    """The error for a name that a module lacks, which says what to use.

    What other libraries call something is read from its docstring, where
    "Also known as" lists it.
    """
    text = f"module {module!r} has no attribute {name!r}"
    if name.startswith("_"):  # Python itself asks for these.
        return AttributeError(text)
    package, _, _ = module.partition(".")
    public_values = dict(_public(sys.modules[package]))
    paths = [place for place in public_values if place.endswith(f".{name}")]
    if paths:
        return AttributeError(f"{text}. Use {paths[0]}.")
    equivalents = {
        id(value): place
        for place, value in public_values.items()
        if _simplify(name) in names_elsewhere(value)
    }
    if equivalents:
        return AttributeError(
            f"{text}, which is {' or '.join(equivalents.values())} here{_SEE}"
        )
    names = [place.rpartition(".")[2] for place in public_values]
    return AttributeError(f"{text}.{did_you_mean(name, names, 0.8)}")


def attribute_hints(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a package, which raises `no_attribute`."""

    def __getattr__(name: str) -> Any:
        raise no_attribute(module, name)

    return __getattr__


def _public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Public values of a module and of those within, by full name."""
    default = [
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__
        and not name.startswith("_")
    ]
    for name in getattr(module, "__all__", default):
        value = getattr(module, name, None)
        if isinstance(value, ModuleType):
            yield from _public(value)
        if value is not None:
            yield f"{module.__name__}.{name}", value


def names_elsewhere(value: Any, with_functions: bool = False) -> set[str]:
    """The name of a class, and those in its docstring's "Also known as".

    Names of functions there are mostly those of arguments, and left out.
    """
    if isinstance(value, partial):
        value = value.func
    is_module = isinstance(value, ModuleType)
    if not (inspect.isclass(value) or inspect.isfunction(value) or is_module):
        return set()
    aliases = re.search(
        r"^Also known as:\n((?: .*\n|\n)*)",
        f"{inspect.getdoc(value)}\n",
        flags=re.MULTILINE,
    )
    section = " ".join(aliases[1].split()) if aliases else ""
    first = r"\w" if is_module or with_functions else "[A-Z]"
    names = re.findall(rf"`({first}\w*)(?:\([^`]*)?`", section)
    names += re.split(", |[.] ", section.partition("Elsewhere: ")[2])
    return {_simplify(x) for x in [value.__name__, *names]}


def _simplify(name: str) -> str:
    """A name without case, signs and "loss": TripletLoss is triplet."""
    return re.sub("[^a-z0-9]", "", name.lower()).removesuffix("loss")


def import_modules(package: str) -> None:
    """Imports every module of a package, so that its classes register."""
    parent = importlib.import_module(package)
    for module in pkgutil.iter_modules(parent.__path__, f"{package}."):
        importlib.import_module(module.name)


def attributes(module: str, registry: Registry[T]) -> Callable[[str], T]:
    """The `__getattr__` of a package whose attributes are registered."""

    def __getattr__(name: str) -> T:
        if name not in registry:
            raise no_attribute(module, name)
        return registry[name].value

    return __getattr__
