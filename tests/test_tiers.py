"""What the registries name has tests that are not slow; others their script."""

import re
from pathlib import Path

import pytest

from keras_dml.evaluation import METRICS
from keras_dml.losses import LOSSES
from keras_dml.methods import METHODS
from tests.cli.test_pages import COMMANDS

TESTS = Path(__file__).parent
PEERS = (
    "jax", "keras_cv", "openvino", "pydot", "pytorch_metric_learning",
    "sentence_transformers", "tensorflow_serving", "torch",
)  # fmt: skip
TRACKING = ("mlflow", "wandb")
ENGINES = ("lancedb", "milvus_lite", "pymilvus", "ray")


@pytest.mark.parametrize(
    ("mark", "packages", "least"),
    [("peers", PEERS, 13), ("engines", ENGINES, 0), ("tracking", TRACKING, 2)],
)
def test_what_needs_a_package_is_marked(mark, packages, least) -> None:
    """Else no step of CI would run it: `.ci/` has a script for each mark."""
    named = "|".join(packages)
    backend = r"|backend\)" if mark == "peers" else ""
    needs = rf'(importorskip|find_spec)\(("({named})[".]{backend})'
    texts = {x: x.read_text() for x in TESTS.rglob("test_*.py")}
    counts = {
        x.relative_to(TESTS).as_posix(): (
            len(re.findall(needs, text)),
            text.count(f"pytest.mark.{mark}"),
        )
        for x, text in texts.items()
        if "test_tiers" not in x.name
    }
    assert sum(needed for needed, _ in counts.values()) >= least
    assert {x: n for x, n in counts.items() if n[0] > n[1]} == {}


@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("losses/test_contract.py", LOSSES),
        ("methods/test_contract.py", METHODS),
        ("evaluation/test_metrics.py", METRICS),
        ("cli/test_pages.py", COMMANDS),
    ],
)
def test_every_name_is_in_the_fast_tier(request, file, names) -> None:
    tests = [
        test
        for test in request.session.items
        if test.nodeid.startswith(f"tests/{file}::")
        and not test.get_closest_marker("slow")
    ]
    if not tests:
        pytest.skip(f"tests of {file} were not asked for")
    called = [getattr(test, "callspec", None) for test in tests]
    tested = {call.params.get("name") for call in called if call}
    assert tested >= set(names)
