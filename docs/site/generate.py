"""Writes all generated files of the docs: `python docs/site/generate.py`."""

import runpy
from pathlib import Path

PROGRAMS = ("tables", "papers", "commands", "examples")
"""Those of this folder whose `written()` returns texts by path."""

if __name__ == "__main__":
    for program in PROGRAMS:
        path = Path(__file__).with_name(f"{program}.py")
        runpy.run_path(str(path), run_name="__main__")
