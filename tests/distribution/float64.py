"""Replicas against one device in float64, which leaves rounding no room.

    python -m tests.distribution.float64 [--all]

reads every float32 in the package's source as float64. With `--all` it trains
every loss, miner and method, else those that differ by more than a formula.
"""

import ast
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType
from typing import Any

import keras


class Widened(ast.NodeTransformer):
    """ "float32", np.float32 and tf.float32 in a tree become float64."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if node.value == "float32":
            node.value = "float64"
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.Attribute:
        self.generic_visit(node)
        if node.attr == "float32":
            node.attr = "float64"
        return node


class Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        tree = Widened().visit(ast.parse(self.get_data(self.path)))
        return compile(tree, self.path, "exec", dont_inherit=True)


class Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: Any = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != "keras_dml":
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = Loader(fullname, spec.loader.path)
        return spec


def main(every: bool) -> None:
    """Widens the package before its import, then compares."""
    sys.meta_path.insert(0, Finder())
    keras.config.set_floatx("float64")
    import tensorflow as tf

    from tests.distribution import equality

    replicas = tf.distribute.MirroredStrategy(equality.use_logical_devices(2))
    for case in [*equality.loss_cases(every), *equality.method_cases(every)]:
        print(case.name, flush=True)
        # Eagerly, which is faster than to trace for three steps.
        equality.check_equal(case, replicas, 1e-10, 1e-9, eager=True)


if __name__ == "__main__":
    main("--all" in sys.argv)
