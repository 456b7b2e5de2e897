"""Prints the ```sh block of the README below the mark `<!--ci: NAME-->`."""

import re
import sys
from pathlib import Path

text = (Path(__file__).parents[1] / "README.md").read_text()
mark = re.escape(f"<!--ci: {sys.argv[1]}-->")
(block,) = re.findall(rf"^{mark}\n```sh\n(.*?)^```", text, re.M | re.S)
print(block.strip())
