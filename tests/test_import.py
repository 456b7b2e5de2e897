"""What `import keras_dml` does, and what it does not."""

import subprocess
import sys

import keras_dml

HEAVY = ("faiss", "pydantic", "rich", "tensorflow_datasets", "yaml", "click")


def test_everything_listed_is_there() -> None:
    for name in keras_dml.__all__:
        assert hasattr(keras_dml, name)


def test_heavy_libraries_wait_until_they_are_used() -> None:
    code = (
        "import sys, keras, tensorflow; before = set(sys.modules)\n"
        "import keras_dml\n"
        "print(*{m.partition('.')[0] for m in set(sys.modules) - before})"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    imported = set(result.stdout.split())
    assert "keras_dml" in imported
    assert not imported & set(HEAVY)
