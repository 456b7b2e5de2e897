"""A script that prints the contents of a MATLAB file as JSON.

It runs in a separate process, because SciPy may crash on a damaged file.
"""

import json
import sys
from typing import Any


def main(path: str) -> None:
    """Prints the annotations, as lists by field, and the class names."""
    import numpy as np
    from scipy.io import loadmat

    content = loadmat(path, squeeze_me=True)
    annotations = np.atleast_1d(content.get("annotations", np.array([])))
    names = np.atleast_1d(content.get("class_names", []))
    said = {
        "annotations": {
            field: annotations[field].tolist()
            for field in annotations.dtype.names or ()
        },
        "class_names": [str(x) for x in names],
    }

    def plain(value: Any) -> Any:
        return value.item() if isinstance(value, np.generic) else repr(value)

    json.dump(said, sys.stdout, default=plain)


if __name__ == "__main__":
    main(sys.argv[1])
