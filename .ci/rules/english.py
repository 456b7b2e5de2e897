"""Sentences are whole. Spelling is checked by codespell."""

import ast
import re
from collections.abc import Iterator

from rules.tree import Finding, Tree, line_of

QUESTION = re.compile(r"(How|What|When|Where|Which|Who|Whose|Why)\b")


def check(tree: Tree) -> Iterator[Finding]:
    github = sorted((tree.root / ".github").rglob("*.md"))
    for page in [*tree.pages, *github]:
        for found in re.finditer(r"^#+ (.+)$", tree.prose(page), re.M):
            heading = found[1]
            asks = QUESTION.match(heading) and not heading.endswith("?")
            if asks or heading.endswith((":", "…")):
                text = f"write a whole question or a noun phrase: {heading}"
                yield Finding(page, line_of(found), text)
    for module in tree.modules:
        for line in stray_texts(tree.code(module)):
            text = "this text is used by nothing: is it half of the one before?"
            yield Finding(module, line, text)


def stray_texts(module: ast.Module) -> Iterator[int]:
    """Lines of statements that are only a text: half a sentence, lost.

    The first statement of a block that may have a docstring is one, and
    below an assignment of a module or a class it describes the value.
    """
    for node in ast.walk(module):
        is_class = isinstance(node, ast.Module | ast.ClassDef)
        functions = ast.FunctionDef | ast.AsyncFunctionDef
        may_start = is_class or isinstance(node, functions)
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if not isinstance(block, list):
                continue
            for i, statement in enumerate(block):
                before = block[i - 1] if i else None
                describes = is_class and isinstance(
                    before, ast.Assign | ast.AnnAssign
                )
                if is_text(statement) and not (
                    describes or (may_start and not i)
                ):
                    yield statement.lineno


def is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and (
        isinstance(statement.value, ast.JoinedStr)
        or isinstance(getattr(statement.value, "value", None), str)
    )
