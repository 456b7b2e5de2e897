"""Prints the n-th ```sh block of the README."""

import re
import sys
from pathlib import Path

readme = Path(__file__).parents[1] / "README.md"
blocks = re.findall(r"^```sh\n(.*?)^```", readme.read_text(), re.M | re.S)
print(blocks[int(sys.argv[1]) - 1].strip())
