"""What the registries name has tests that are not slow."""

import pytest

from keras_dml.evaluation import METRICS
from keras_dml.losses import LOSSES
from keras_dml.methods import METHODS
from tests.cli.test_pages import COMMANDS


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
