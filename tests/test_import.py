"""What `import keras_dml` does, and what it does not."""

import importlib
import os
import pkgutil
import subprocess
import sys

import pytest

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


@pytest.mark.parametrize(
    ("program", "before", "level"),
    [
        ("/usr/bin/keras-dml", {}, "2"),
        ("/usr/bin/keras-dml", {"TF_CPP_MIN_LOG_LEVEL": "0"}, "0"),
        ("train.py", {}, "None"),
    ],
)
def test_only_the_command_quiets_tensorflow(program, before, level) -> None:
    """And it does so before TensorFlow is imported, which reads it once."""
    code = (
        "import os, sys\n"
        f"sys.argv = [{program!r}]\n"
        "class Tell:\n"
        "    def find_spec(name, path, target=None):\n"
        "        if name == 'tensorflow':\n"
        "            level = os.environ.get('TF_CPP_MIN_LOG_LEVEL')\n"
        "            print(level, flush=True)\n"
        "            os._exit(0)\n"
        "sys.meta_path.insert(0, Tell)\n"
        "import keras_dml"
    )
    inherited = dict(os.environ)
    inherited.pop("TF_CPP_MIN_LOG_LEVEL", None)
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=inherited | before,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.split() == [level]


def packages() -> list[str]:
    return [
        keras_dml.__name__,
        *(
            module.name
            for module in pkgutil.walk_packages(
                keras_dml.__path__, "keras_dml."
            )
            if module.ispkg and module.name != "keras_dml.cli"
        ),
    ]


@pytest.mark.parametrize("name", packages())
def test_no_function_hides_a_module(name) -> None:
    """A module named like what it exports starts with an underscore."""
    package = importlib.import_module(name)
    for module in pkgutil.iter_modules(package.__path__):
        found = importlib.import_module(f"{name}.{module.name}")
        assert getattr(package, module.name) is found
