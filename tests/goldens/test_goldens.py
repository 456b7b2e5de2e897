"""Names and numbers equal those that `measure.py` wrote before."""

import json

import numpy as np
import pytest

from tests.goldens import measure
from tests.goldens.measure import HERE

VALUES = json.loads((HERE / "values.json").read_text())


def test_public_signatures_are_unchanged() -> None:
    """Intended changes are in the changelog, with a way out."""
    before = json.loads((HERE / "signatures.json").read_text())
    now = measure.signatures()
    changed = {
        name: (before[name], now.get(name))
        for name in before
        if before[name] != now.get(name)
    }
    assert not changed, "write signatures.json anew if this is meant"


@pytest.mark.slow
@pytest.mark.parametrize("method", measure.METHODS)
def test_weights_after_five_steps_are_unchanged(method: str) -> None:
    """Compares every variable of the model and the optimizer."""
    jit = method == "baseline"
    before = VALUES["weights"][f"{method} {'xla' if jit else 'graph'}"]
    now = measure.weights_after_five_steps(method, jit)
    assert now.keys() == before.keys()
    for path, (total, length, _) in before.items():
        np.testing.assert_allclose(
            now[path][:2], [total, length], rtol=1e-3, atol=1e-4, err_msg=path
        )


@pytest.mark.parametrize("name", measure.embedding_sets())
def test_metrics_are_unchanged(name: str) -> None:
    assert measure.metrics(name) == pytest.approx(
        VALUES["metrics"][name], abs=1e-12
    )


@pytest.mark.parametrize("factory", measure.FACTORIES)
def test_hits_are_unchanged(factory: str) -> None:
    assert measure.hits(factory) == VALUES["hits"][factory]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the converter
def test_outputs_of_exports_are_unchanged() -> None:
    before, now = VALUES["outputs"], measure.outputs()
    assert now.keys() == before.keys()
    for signature, outputs in before.items():
        assert now[signature].keys() == outputs.keys()
        for key, value in outputs.items():
            if np.asarray(value).dtype.kind == "f":
                np.testing.assert_allclose(
                    now[signature][key], value, atol=1e-5
                )
            else:
                assert now[signature][key] == value
