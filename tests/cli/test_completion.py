"""Shell completion: suggestions, and the imports that they take."""

import os
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete

from keras_dml.cli import main

HEAVY = {"tensorflow", "keras", "numpy", "pydantic", "yaml", "rich"}


def offered(*words: str) -> set[str]:
    """Completions of the last word."""
    *before, last = words
    completer = ShellComplete(main, {}, "keras-dml", "_KERAS_DML_COMPLETE")
    return {x.value for x in completer.get_completions(before, last)}


def test_commands_and_options_are_completed() -> None:
    assert {"train", "evaluate", "search"} <= offered("")
    assert offered("tr") == {"train"}
    assert offered("recipes", "") == {"list", "show", "copy"}
    assert "--json" in offered("evaluate", "--")
    assert {"add", "build", "remove", ""} <= offered("index", "")
    assert offered("index", "runs/f") == {"runs/f"}
    assert "--calibrate" in offered("index", "--cal")
    assert offered("evaluate", "--split", "te") == {"test"}


@pytest.mark.parametrize(
    "words", [("train",), ("recipes", "show"), ("benchmark", "glyphs/diva")]
)
def test_names_of_recipes_and_files_are_completed(words) -> None:
    completions = offered(*words, "glyphs/d")
    assert completions == {
        "glyphs/dcml",
        "glyphs/dcml_clusters",
        "glyphs/distillation",
        "glyphs/diva",
        "glyphs/divide_and_conquer",
        "glyphs/dreml",
        "glyphs/d",  # The shell completes it to files.
    }


def test_completion_imports_nothing_heavy() -> None:
    words = "keras-dml train gly"
    code = (
        "import atexit, sys; sys.argv[0] = '/usr/bin/keras-dml'\n"
        "atexit.register(lambda: print(*{x.partition('.')[0] "
        "for x in sys.modules}, file=sys.stderr))\n"
        "from keras_dml.cli import main\n"
        "main(prog_name='keras-dml')"
    )
    asked = {
        "_KERAS_DML_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | asked,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.startswith("plain,")
    assert not set(ended.stderr.split()) & HEAVY
