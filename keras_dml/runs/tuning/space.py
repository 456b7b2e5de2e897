"""Space: the settings of a recipe to search, and their values."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from keras_dml.recipes import Recipe, RecipeError, validate
from keras_dml.recipes.inheritance import merge, with_origin
from keras_dml.recipes.reading import read_yaml
from keras_dml.utils.arguments import did_you_mean

_KEYS = ("low", "high", "log", "step")
_WAY_OUT = (
    "Use {low: 1.0e-5, high: 1.0e-2, log: true}, {low: 2, high: 8, step: 2} "
    "or a list of choices."
)


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included.

    They are integers if both ends are, and floats otherwise.
    """

    low: float
    high: float
    log: bool = False
    step: float | None = None

    @property
    def extremes(self) -> list[Any]:
        """Values that are checked for all."""
        return [self.low, self.high]

    def suggest(self, trial: Any, key: str) -> Any:
        """A value for a trial of Optuna."""
        if isinstance(self.low, int) and isinstance(self.high, int):
            step = 1 if self.step is None else int(self.step)
            return trial.suggest_int(
                key, self.low, self.high, step=step, log=self.log
            )
        return trial.suggest_float(
            key, self.low, self.high, step=self.step, log=self.log
        )

    def value(self, parameter: Any) -> Any:
        """The setting that Optuna's parameter stands for."""
        return parameter


@dataclass(frozen=True)
class Choices:
    """Some values, in no order."""

    values: tuple[Any, ...]

    @property
    def extremes(self) -> list[Any]:
        """Values that are checked for all."""
        return list(self.values)

    def suggest(self, trial: Any, key: str) -> Any:
        """A value for a trial of Optuna."""
        labels = [_label(x) for x in self.values]
        return self.value(trial.suggest_categorical(key, labels))

    def value(self, parameter: Any) -> Any:
        """The setting that Optuna's parameter stands for."""
        return {_label(x): x for x in self.values}[parameter]


@dataclass(frozen=True)
class Space:
    """Settings by dotted key, such as "optimizer.learning_rate"."""

    settings: dict[str, Range | Choices]

    def suggest(self, trial: Any) -> dict[str, Any]:
        """Values for a trial of Optuna, by dotted key."""
        return {k: x.suggest(trial, k) for k, x in self.settings.items()}

    def values(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The settings that parameters of Optuna stand for."""
        return {k: self.settings[k].value(x) for k, x in parameters.items()}


def read_space(path: str | os.PathLike[str], recipe: Recipe) -> Space:
    """Reads a space from a YAML file, and checks it with a recipe.

    Args:
        path: Keys are dotted settings of recipes. Values are ranges,
            `{low: 1.0e-5, high: 1.0e-2, log: true}`, or lists of choices.
        recipe: What is searched; each value must fit it.

    Raises:
        OSError: If the file cannot be read.
        RecipeError: If a key is unknown (the nearest known one is named), or
            a value does not fit the recipe.
        ValueError: If it is not YAML, or no space.
    """
    name = os.fspath(path)
    try:
        content = read_yaml(path)
    except OSError as error:
        raise type(error)(
            f"The space {name} cannot be read: {error.strerror}. Check its "
            "path, which is relative to the current folder."
        ) from None
    except ValueError as error:
        raise ValueError(
            f"The space {name} cannot be read: {error}. {_WAY_OUT}"
        ) from None
    return checked(content, recipe, name)


def checked(content: Any, recipe: Recipe, source: str = "of tune") -> Space:
    """The space that a mapping describes; see `read_space`."""
    if not isinstance(content, Mapping) or not content:
        raise ValueError(
            f"The space {source} must have dotted settings of the recipe as "
            f"keys. Received: {str(content)[:100]!r}. Use "
            "`optimizer.learning_rate: {low: 1.0e-5, high: 1.0e-2, log: true}`."
        )
    space = Space({str(k): _setting(str(k), x) for k, x in content.items()})
    for key, values in space.settings.items():
        for value in values.extremes:
            changed(recipe, {key: value}, f"with {key}={value} ({source})")
    return space


def changed(recipe: Recipe, settings: Mapping[str, Any], source: str) -> Recipe:
    """A recipe with some settings changed.

    Raises:
        RecipeError: If they do not fit.
    """
    content = recipe.model_dump(mode="json")
    return validate(
        merge(content, with_origin(nested(settings), False)), source
    )


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """{"a.b": c} → {"a": {"b": c}}.

    Raises:
        RecipeError: If a setting is inside another.
    """
    found: dict[str, Any] = {}
    for key, value in settings.items():
        *above, last = key.split(".")
        section = found
        for part in above:
            section = section.setdefault(part, {})
            if not isinstance(section, dict):
                raise RecipeError(
                    "The settings of a space must not be nested in each other. "
                    f"Received: {key!r} and {part!r}."
                )
        section[last] = value
    return found


def _setting(key: str, given: Any) -> Range | Choices:
    if isinstance(given, list):
        labels = {repr(_label(x)) for x in given}
        if len(given) < 2 or len(labels) < len(given):
            _refuse(key, "have at least two choices, each once", given)
        return Choices(tuple(given))
    if not isinstance(given, Mapping):
        _refuse(key, "be a range or a list of choices", given)
    for name in given:
        if name not in _KEYS:
            hint = did_you_mean(name, _KEYS)
            _refuse(key, f"have the keys {', '.join(_KEYS)}", given, hint)
    return _range(key, given)


def _range(key: str, given: Mapping[str, Any]) -> Range:
    low: Any = given.get("low")
    high: Any = given.get("high")
    step, log = given.get("step"), given.get("log", False)
    if not all(map(_is_number, (low, high, 1 if step is None else step))):
        _refuse(key, "have numbers as low, high and step", given)
    if not isinstance(log, bool):
        _refuse(key, "have true or false as log", given)
    if not low < high:
        _refuse(key, "have a `low` below its `high`", given)
    if log and (low <= 0 or step is not None):
        _refuse(key, "have a `low` above 0, and no step, where log is", given)
    if step is not None:
        steps = (high - low) / step if step > 0 else 0.0
        if round(steps) < 1 or not math.isclose(steps, round(steps)):
            _refuse(key, "reach `high` in whole steps from `low`", given)
        if isinstance(low, int) and isinstance(high, int) and step % 1:
            _refuse(key, "have a whole step between integers", given)
    return Range(low, high, log, step)


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)


def _refuse(key: str, rule: str, given: Any, hint: str = "") -> None:
    raise ValueError(
        f"`{key}` of a space must {rule}. Received: {str(given)[:200]}.{hint} "
        f"{_WAY_OUT}"
    )


def _label(value: Any) -> Any:
    """A choice as Optuna stores it: a scalar, or what stands for another."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False)
    return text.strip()
