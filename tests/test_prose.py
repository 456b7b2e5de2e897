"""What users read is idiomatic English: pages, docstrings and messages.

A small house style in place of a linter, as it needs neither a package nor a
network: patterns that read as translated, with what to write instead. It
looks at the prose of README, docs and notebooks, without code, at all texts in
the package and its page, at comments of recipes, and at the forms of issues.
"""

import ast
import html
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")),
    *sorted((ROOT / ".github").rglob("*.md")),
]
STATIC = ROOT / "keras_dml" / "serve" / "page" / "static"
OTHERS = [
    *sorted(STATIC.glob("*.html")),
    *sorted(STATIC.glob("*.js")),
    *sorted((ROOT / "recipes").rglob("*.yaml")),
    *sorted((ROOT / ".github").rglob("*.yml")),
]
MODULES = sorted((ROOT / "keras_dml").rglob("*.py"))

COUNTED = (
    "bits|bytes|classes|examples|hits|images|labels|learners?|ms|numbers|"
    "positives|rows|seconds|slices?|steps|values|vectors|views"
)
THING = (
    "batch|class|cluster|epoch|example|group|image|learner|list|pair|pixel|"
    "query|record|row|shard|step|task|worker"
)
"""What things are counted by: "images a class" is "images per class"."""

INSTEAD = {
    # Word order and grammar that are those of another language.
    r"(that|which) (is|are) no(?! longer| more)": "that is not a …",
    rf"({COUNTED}) an? ({THING})(?! has\b)": "per …",
    r"(that|what) there (is|are)(?! an?\b| no\b| to\b)": "available",
    r"(what|that|which) (is|are) there(?= |[.,;:)])": "existing",
    r"go(es)? on with|gone on with|went on with": "continue",
    r"(\w+ )?goes on(?=[.,;:)]| and\b| from\b| at\b| then\b)": "continues",
    r"(has|have|if|where) such|such (is|are)": "name it again",
    r"at the (most|least)(?=[.,;:)])": "at most, at least",
    r"so many(?! \w+ that)": "this number of …",
    r"(do|does|done) without(?=[.,;:)])": "does not need it",
    r"(is|are) said (with|by|of)": "is described in …",
    r"these very": "these same",
    r"turn about": "alternately",
    r"can be looked at": "can be viewed, visualized",
    r"in (its|their) means": "the means …",
    r"as much by it": "as much from it",
    r"without (teacher|sampler|server|threshold)(?=[.,;:)])": "without a …",
    r"(model|server|file|package) is (there|away)": "exists, is unreachable",
    r"better by far": "far better",
    r"pass(es)? (it|them|the \w+) over": "skips",
    r"(left|kept) as (easy|hard)": "that remain …",
    r"of whatever": "of the … that",
    r"is the choice": "choose",
    r"for each two": "for every pair of",
    r"network that trains": "network that is trained",
    r"what trains is": "only … is trained",
    # Words that nobody else uses for it.
    r"mend(s|ed|ing)?": "fix",
    r"on the spot": "locally",
    r"(be|is|are) mailed": "e-mailed",
    r"endless link": "circular link",
    r"hangs? on (it|them|the)": "depends on",
    r"odd (in|about)": "problems in",
    r"by so many": "by this number of",
    r"to the last bit": "bit-identical",
    r"as tuned": "with the tuned settings",
    r"of no use": "dropped, unused",
    r"counts on(?=[.,;:)])": "continues the count",
    r"costs? more than (it|they) brings?": "does more harm than good",
    r"several looks": "varied appearance",
    r"told with": "say",
    r"the way out": "what to do",
    r"so to speak": "drop it, or use quotation marks",
    r"slips?": "typing errors",
    r"(?<=# )go on": "Next steps",
    # One spelling.
    r"colou?rs?(?<=our)|colours?|grey|neighbours?|centres?|behaviours?": (
        "color, gray, neighbor, center, behavior"
    ),
    r"(normal|optim|initial|visual|regular)is(e|es|ed|ing|ation)": "-ize",
}
PATTERN = {
    re.compile(rf"\b({pattern})(?!\w)", re.I): instead
    for pattern, instead in INSTEAD.items()
}
QUESTION = re.compile(r"(How|What|When|Where|Which|Who|Whose|Why)\b")


def findings(text: str) -> list[str]:
    """Where a text reads as translated, and what to write instead."""
    text = " ".join(text.split())
    return [
        f"{text[max(found.start() - 30, 0) : found.end() + 20]!r}: {instead}"
        for pattern, instead in PATTERN.items()
        for found in pattern.finditer(text)
    ]


def in_notebook(text: str) -> str:
    cells = json.loads(text)["cells"]
    marked = [x["source"] for x in cells if x["cell_type"] == "markdown"]
    return "\n\n".join("".join(source) for source in marked)


def in_html(text: str) -> str:
    """What it shows, and what screen readers read out."""
    labels = re.findall(r'\b(?:alt|aria-label|title)="([^"]*)"', text)
    text = re.sub(r"<code>.*?</code>", "…", text, flags=re.S)
    return "\n".join([html.unescape(re.sub(r"<[^>]*>", "", text)), *labels])


def in_js(text: str) -> str:
    """Its strings; those that are joined by a plus are one."""
    text = re.sub(r"(^|\s)//.*", "", text, flags=re.M)
    text = re.sub(r"\$\{[^{}]*\}", "…", text)
    found, end = "", 0
    for string in re.finditer(r'"(\\.|[^"\\])*"|`(\\.|[^`\\])*`', text):
        is_joined = text[end : string.start()].strip() == "+"
        found += ("" if is_joined else "\n") + string[0][1:-1]
        end = string.end()
    return found


def in_recipe(text: str) -> str:
    return "\n".join(re.findall(r"(?:^|\s)# (.*)", text))


def in_form(text: str) -> str:
    keys = "name|description|label|placeholder"
    return "\n".join(re.findall(rf"\b(?:{keys}): (.*)", text))


IN: dict[str, Callable[[str], str]] = {
    ".md": str,
    ".ipynb": in_notebook,
    ".html": in_html,
    ".js": in_js,
    ".yaml": in_recipe,
    ".yml": in_form,
}
"""What people read in a file, by the ending of its name."""


def prose(page: Path) -> str:
    """A page without blocks of code, code within lines, and addresses."""
    text = IN[page.suffix](page.read_text(encoding="utf-8"))
    text = re.sub(r"^\s*```.*?^\s*```", "", text, flags=re.M | re.S)
    text = re.sub(r"`[^`]*`", "`…`", text)
    return re.sub(r"\]\([^)]*\)|https?://\S+", "]", text)


def texts(module: Path) -> Iterator[tuple[int, str]]:
    """Docstrings, messages and other texts of a module, by line."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            parts = [
                x.value if isinstance(x, ast.Constant) else "…"
                for x in node.values
            ]
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=name)
def test_pages_read_as_english(page: Path) -> None:
    assert not findings(prose(page))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_headings_are_not_half_sentences(page: Path) -> None:
    """They are noun phrases, imperatives, or whole questions."""
    for heading in re.findall(r"^#+ (.+)$", prose(page), re.M):
        assert not QUESTION.match(heading) or heading.endswith("?"), heading
        assert not heading.endswith((":", "…")), heading


@pytest.mark.parametrize("module", MODULES, ids=name)
def test_docstrings_and_messages_read_as_english(module: Path) -> None:
    found = [
        f"{module.name}:{line}: {finding}"
        for line, text in texts(module)
        for finding in findings(text)
    ]
    assert not found, "\n".join(found)


def stray_texts(tree: ast.Module) -> list[int]:
    """Lines of statements that are only a text: half a sentence, lost.

    The first statement of a block that may have a docstring is one, and
    below an assignment of a module or a class it describes the value.
    """
    found = []
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if not isinstance(block, list):
                continue
            is_class = isinstance(node, ast.Module | ast.ClassDef)
            may_start = is_class or isinstance(
                node, ast.FunctionDef | ast.AsyncFunctionDef
            )
            for i, statement in enumerate(block):
                if not isinstance(statement, ast.Expr) or not (
                    isinstance(statement.value, ast.JoinedStr)
                    or isinstance(getattr(statement.value, "value", 0), str)
                ):
                    continue
                before = block[i - 1] if i else None
                describes = is_class and isinstance(
                    before, ast.Assign | ast.AnnAssign
                )
                if not (describes or (may_start and not i)):
                    found.append(statement.lineno)
    return found


@pytest.mark.parametrize(
    "code",
    [
        'def f():\n    """It says."""\n    x = "half, "\n    "lost"',
        'def f():\n    if x:\n        return "half, "\n        "lost"',
        'def f():\n    try:\n        "lost"\n    finally:\n        pass',
        'def f():\n    x = f"half {x}, "\n    f"{x} lost"',
    ],
)
def test_half_a_sentence_that_is_lost_is_found(code: str) -> None:
    assert len(stray_texts(ast.parse(code))) == 1


def test_no_half_of_a_sentence_is_lost() -> None:
    trees = {x: ast.parse(x.read_text(encoding="utf-8")) for x in MODULES}
    lost = {name(x): stray_texts(tree) for x, tree in trees.items()}
    assert not {x: lines for x, lines in lost.items() if lines}
