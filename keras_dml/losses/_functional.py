"""Pure functions of losses: the computation of `call` without an object."""

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Any

from keras import ops

from keras_dml.losses.base import MetricLoss
from keras_dml.losses.mining import get as get_miner
from keras_dml.losses.pair_loss import PairLoss
from keras_dml.losses.pairs import Batch
from keras_dml.losses.proxy_loss import ProxyLoss
from keras_dml.utils.serialization import parameters_of
from keras_dml.utils.types import Tensor

# Of the object, its variables and what is done before `call`.
_NO_ARGUMENTS = {
    "name", "normalize", "num_classes", "initializer", "learn_beta",
    "class_share",
}  # fmt: skip
_NO_ARGUMENTS_ON_PROXIES = _NO_ARGUMENTS | {"seed"}


def functional(name: str, cls: type[MetricLoss]) -> Callable[..., Tensor]:
    """The pure function of a loss.

    It takes the tensors of `MetricLoss.per_example`, or of `values` of a
    `ProxyLoss`: float32, and normalized if necessary. Its keyword arguments are
    those of the class, except that numbers may be tensors, and `seed` may be
    anything that `keras.random` takes.
    """
    is_on_proxies = issubclass(cls, ProxyLoss)
    method = ProxyLoss.values if is_on_proxies else MetricLoss.per_example
    no_arguments = _NO_ARGUMENTS_ON_PROXIES if is_on_proxies else _NO_ARGUMENTS
    tensors = list(signature(method).parameters.values())[1:]
    arguments = [
        parameter.replace(kind=Parameter.KEYWORD_ONLY)
        for parameter in parameters_of(cls).values()
        if parameter.name not in no_arguments
    ]
    own = Signature([*tensors, *arguments], return_annotation=Tensor)

    def function(*args: Any, **kwargs: Any) -> Tensor:
        given = own.bind(*args, **kwargs)
        given.apply_defaults()
        # A constructor could not look at the values of tensors in a graph.
        later = {k: v for k, v in given.kwargs.items() if ops.is_tensor(v)}
        config = {k: v for k, v in given.kwargs.items() if k not in later}
        if issubclass(cls, PairLoss):
            # A generator is a variable, which no call may create.
            later["miner"] = get_miner(config["mining"])
            later["seed_generator"] = config.pop("seed")
            config["mining"] = "all"
        if is_on_proxies:
            config["num_classes"] = 2  # `values` counts the proxies.
        loss: Any = cls(name=name, **config)
        for key, value in later.items():
            setattr(loss, key, value)
        if is_on_proxies:
            return loss.values(*given.args)
        return loss.call(Batch(*given.args))

    function.__name__ = function.__qualname__ = name
    function.__module__ = cls.__module__.partition("._")[0]
    function.__doc__ = f"The (B,) values of `{cls.__name__}`; see this class."
    vars(function)["__signature__"] = own
    return function
