"""Names are nouns for things and verbs for actions; numbers have a noun.

`found = search(x)` does not say what was found; `hits = search(x)` does.
"""

import ast
from collections.abc import Iterator

from rules.tree import Finding, Tree

# An adjective, a participle or a pronoun that stands alone.
BARE = frozenset(
    """
    found given own known others places wanted named some most made told
    kept left held sent drawn taken shown gone lost said seen meant asked
    """.split()
)
# Verbs that only look like participles.
VERBS = frozenset({"embed", "feed", "need", "seed", "speed"})
QUANTITIES = frozenset(
    """
    MOST LEAST FEW FEWEST LITTLE SOME SEVERAL MANY ONLY EACH WHOLE WIDER
    WIDEST FARTHER LARGE LARGEST SMALL SMALLEST TINY HUGE SHORT LONGEST LATE
    BEYOND STUCK NEAR REMOVED OTHERS KEPT TAKEN USED TRIED
    """.split()
)
# What users call, or override, by these names.
PUBLIC = frozenset(
    {
        ("callbacks/clustering.py", "kept"),
        ("callbacks/projector.py", "most"),
        ("data/arrayset.py", "called"),
        ("data/examples.py", "called"),
        ("data/examples.py", "relabeled"),
        ("samplers/relation.py", "others"),
        ("layers/attention_ensemble.py", "pooled"),
        ("losses/pair_loss.py", "mined"),
        ("methods/_distillation.py", "completed"),
        ("model/objective.py", "completed"),
        ("visualization/embeddings.py", "most"),
    }
)


def check(tree: Tree) -> Iterator[Finding]:
    for module in tree.modules:
        file = "/".join(module.parts[-2:])
        for line, name, is_function in bindings(tree.code(module)):
            if (file, name) in PUBLIC:
                continue
            if problem := judge(name.strip("_"), is_function):
                yield Finding(module, line, f"{name} {problem}")


def judge(word: str, is_function: bool) -> str:
    if word.lower() in BARE:
        return "has no noun: name what it holds or does"
    if is_function and word.endswith("ed") and word.islower():
        is_participle = "_" not in word and word not in VERBS
        return "is a participle: use the verb" if is_participle else ""
    return "has no noun and no unit" if word in QUANTITIES else ""


def bindings(module: ast.Module) -> Iterator[tuple[int, str, bool]]:
    """Lines, names that are bound there, and whether a function is."""
    for node in ast.walk(module):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.lineno, node.name, not is_property(node)
            case ast.ClassDef():
                yield node.lineno, node.name, False
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id, False
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr, False
            case ast.arg():
                yield node.lineno, node.arg, False


def is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("property" in ast.unparse(x) for x in node.decorator_list)
