"""Effects of `import keras_dml`."""

import importlib
import os
import pkgutil
import subprocess
import sys

import pytest

import keras_dml

COMMAND = "import sys; sys.argv[0] = '/usr/bin/keras-dml'\n"
"""Makes a program look like the command."""


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a new process."""
    inherited = dict(os.environ)
    inherited.pop("TF_CPP_MIN_LOG_LEVEL", None)
    return subprocess.run(
        [sys.executable, "-c", code],
        env=inherited | environment,
        capture_output=True,
        text=True,
        check=True,
    )


def test_listed_names_exist() -> None:
    for name in keras_dml.__all__:
        assert hasattr(keras_dml, name)
    assert set(keras_dml.__all__) <= set(dir(keras_dml))
    with pytest.raises(AttributeError, match="no attribute 'lossses'"):
        keras_dml.lossses  # noqa: B018


@pytest.mark.slow
def test_heavy_libraries_are_imported_when_used() -> None:
    code = (
        "import sys, keras, tensorflow\n"
        "packages = lambda: {m.partition('.')[0] for m in sys.modules}\n"
        "before = packages()\n"
        "import keras_dml\n"
        "print(*packages() - before)\n"
        "for name in list(sys.modules):\n"
        "    if name.partition('.')[0] == 'matplotlib':\n"
        "        del sys.modules[name]\n"
        "import keras_dml.visualization, keras_dml.reports\n"
        "print('matplotlib.figure' in sys.modules)\n"
        "print(keras_dml.runs.train.__name__, keras_dml.recipes.__name__)"
    )
    names, figures, lazy = run(code).stdout.splitlines()
    imported = set(names.split()) - sys.stdlib_module_names
    assert imported == {"keras_dml", "xxhash", "annotated_types"}
    assert figures == "False"
    assert lazy == "train keras_dml.recipes"


@pytest.mark.slow
def test_import_registers_all_classes_of_saved_models() -> None:
    code = (
        "import sys, keras, keras_dml\n"
        "registered = lambda: set(keras.saving.get_custom_objects())\n"
        "before, modules = registered(), set(sys.modules)\n"
        "for name in keras_dml.__all__: getattr(keras_dml, name)\n"
        "print(len(before), *registered() - before)\n"
        "print('keras_dml.search' in set(sys.modules) - modules)"
    )
    registered, is_late = run(code).stdout.splitlines()
    count, *missing = registered.split()
    assert int(count) > 100
    assert not missing
    assert is_late == "True"


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"]])
def test_help_of_the_command_imports_nothing_heavy(arguments) -> None:
    code = COMMAND + (
        "before = set(sys.modules)\n"
        "from keras_dml.cli import main\n"
        f"main({arguments!r}, standalone_mode=False)\n"
        "print(*{m.partition('.')[0] for m in set(sys.modules) - before})"
    )
    *shown, names = run(code).stdout.splitlines()
    assert any("measure the model before and after" in line for line in shown)
    imported = set(names.split()) - sys.stdlib_module_names
    assert imported == {"keras_dml", "click"}


@pytest.mark.slow
def test_script_of_a_recipe_finds_all_modules_in_the_command() -> None:
    code = COMMAND + (
        "import keras_dml as dml\n"
        "print('tensorflow' in sys.modules)\n"
        "print(dml.Head.__name__, dml.losses.mining.__name__)"
    )
    assert run(code).stdout.split() == [
        "False",
        "Head",
        "keras_dml.losses.mining",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "before", "level"),
    [
        (COMMAND, {}, "3"),
        (COMMAND, {"TF_CPP_MIN_LOG_LEVEL": "0"}, "0"),
        ("import keras_dml\n", {}, "None"),
    ],
)
def test_only_the_command_quiets_tensorflow(start, before, level) -> None:
    """The variable must be set before TensorFlow's import, which reads it."""
    code = (
        "import os, sys\n"
        "class Tell:\n"
        "    def find_spec(name, path, target=None):\n"
        "        if name == 'tensorflow':\n"
        "            level = os.environ.get('TF_CPP_MIN_LOG_LEVEL')\n"
        "            print(level, flush=True)\n"
        "            os._exit(0)\n"
        "sys.meta_path.insert(0, Tell)\n"
        f"{start}"
        "from keras_dml.cli import main\n"
        "main(['recipes', 'show', 'quickstart'])"
    )
    assert run(code, **before).stdout.split() == [level]


@pytest.mark.slow
def test_command_prints_no_notes_of_tensorflow() -> None:
    """Classes of saved models are registered nevertheless."""
    code = COMMAND + (
        "from keras_dml.cli import main\n"
        "main(['recipes', 'show', 'quickstart'], standalone_mode=False)\n"
        "import keras\n"
        "keras.ops.zeros(1)\n"
        "print(keras.saving.get_registered_object('keras_dml>MetricModel'))"
    )
    result = run(code)
    assert "MetricModel" in result.stdout.splitlines()[-1]
    assert result.stderr == ""


def packages() -> list[str]:
    return [
        keras_dml.__name__,
        *(
            module.name
            for module in pkgutil.walk_packages(
                keras_dml.__path__, "keras_dml."
            )
            if module.ispkg
        ),
    ]


def test_no_function_hides_a_module() -> None:
    """A module named like what it exports starts with an underscore."""
    for name in packages():
        package = importlib.import_module(name)
        for module in pkgutil.iter_modules(package.__path__):
            submodule = importlib.import_module(f"{name}.{module.name}")
            assert getattr(package, module.name) is submodule, submodule
