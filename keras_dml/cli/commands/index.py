"""`keras-dml index`: build, add, remove; and `keras-dml search` in an index."""

import contextlib
import logging
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from keras_dml.cli import common

if TYPE_CHECKING:
    from keras_dml.data import Examples
    from keras_dml.recipes import Recipe
    from keras_dml.search import Index

logger = logging.getLogger(__name__)

_CONDITION = re.compile(r"([^=<>!]+)(!=|<=|>=|=|<|>)(.+)", re.DOTALL)


class _BuildByDefault(click.Group):
    """A group whose default command is `build`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        default = [] if args[0] in self.commands else ["build"]
        return super().resolve_command(ctx, default + args)

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[CompletionItem]:
        """Completes its commands, the options of `build`, and files."""
        names = super().shell_complete(ctx, incomplete)
        options = self.commands["build"].shell_complete(ctx, incomplete)
        return [*names, *options, CompletionItem(incomplete, type="file")]


@click.group(
    cls=_BuildByDefault, context_settings={"ignore_unknown_options": True}
)
def index() -> None:
    """Build an index, add images to it, or remove them.

    `keras-dml index RUN_OR_MODEL DATA` is `keras-dml index build RUN_OR_MODEL
    DATA`. Write ./add for a run with the name of a command.
    """


@index.command(
    epilog=common.example(
        "keras-dml train glyphs/baseline --set epochs=1 --output runs/first",
        "keras-dml index runs/first test --calibrate validation "
        "--output indexes/first",
    )
)
@click.argument("model", metavar="RUN_OR_MODEL", type=click.Path(exists=True))
@click.argument("data", nargs=-1, required=True)
@common.output_option(
    "Folder of the index. [default: indexes/NAME-OF-RUN-OR-MODEL]"
)
@click.option("--overwrite", is_flag=True, help="Replace an index.")
@click.option(
    "--key",
    "keys",
    metavar="COLUMN",
    help="Column with unique keys of the rows, such as path or source. "
    "[default: rows are numbered]",
)
@click.option(
    "--metric",
    type=click.Choice(["cosine", "dot", "euclidean"]),
    default="cosine",
    help="Definition of the scores.",
)
@click.option(
    "--factory",
    default="Flat",
    help="Index type, as a faiss factory string: Flat is exact; HNSW32 and "
    "IVF4096,PQ32 are for large galleries.",
)
@click.option(
    "--parameters",
    help="Search parameters: nprobe=32 for IVF, efSearch=64 for HNSW.",
)
@click.option(
    "--queries",
    metavar="PATH_OR_SPLIT",
    help="Images such as those that will be searched for, to measure the "
    "recall of an approximate index. [default: a sample of DATA]",
)
@click.option(
    "--thumbnails",
    is_flag=True,
    help="Store a small picture of each file, about 10 kB, for an index that "
    "is copied to another machine without the files.",
)
@click.option(
    "--calibrate",
    "calibration",
    metavar="PATH_OR_SPLIT",
    help="Labeled images to find the threshold of a match with, of at least 5 "
    "classes, better 20, that the model was not trained on, such as `test`.",
)
@click.option(
    "--threshold",
    "criterion",
    default="fpir=0.01",
    help="Criterion for the threshold: fpir=0.01, the share of queries whose "
    "class is not in the gallery that get a match; or, of pairs of images: "
    "eer, f1, fpr=0.01.",
)
@common.engine_option
@common.model_option
@common.trust_option
@common.command_body
def build(
    model: str,
    data: tuple[str, ...],
    output: str | None,
    overwrite: bool,
    calibration: str | None,
    criterion: str,
    which: str,
    queries: str | None,
    **kind: Any,
) -> None:
    """Build a searchable index of the images in DATA.

    RUN_OR_MODEL is the folder of a run or a .keras file. DATA are folders of
    images, with or without a folder per class, or splits of the run's data:
    train, validation or test; or tables and lists, as for `keras-dml embed`.
    Write ./test for a folder with that name.
    """
    from keras_dml.cli import sources
    from keras_dml.data import ImageSet
    from keras_dml.evaluation.identification import parse_rate
    from keras_dml.search import Index

    # Mistakes must show before images are embedded, which takes long.
    is_of_searches = parse_rate(criterion) is not None
    target = Path(output or Path("indexes") / Path(model).resolve().stem)
    if not overwrite and (target / "index.json").exists():
        raise FileExistsError(
            f"There is already an index in {target}. Use --overwrite to "
            "replace it, or another --output."
        )
    network, recipe = sources.read_model(model, which)
    images = sources.read_images(data, recipe)
    unseen = _read_calibration(calibration, recipe, is_of_searches)
    is_in_no_file = isinstance(images, ImageSet) and images.paths is None
    kind["thumbnails"] |= is_in_no_file
    if queries is not None:
        kind["queries"] = sources.read_images([queries], recipe)
    built = Index.build(network, images, **kind)
    if unseen is not None:
        built.calibrate(unseen, criterion=criterion)
    built.save(target, overwrite=overwrite)
    names = ("dim", "factory", "parameters", "metric", "recall", "threshold")
    about = {name: getattr(built, name) for name in names}
    common.answer({"index": target, "images": len(built), **about})
    common.print_table([["", ""], *_rows(built)], f"Index in {target}")
    common.suggest("keras-dml", "serve", model, "--gallery", target)


def _read_calibration(
    source: str | None, recipe: "Recipe | None", is_of_searches: bool
) -> "Examples | None":
    """Reads the images of `--calibrate`; None if they have too few classes."""
    from keras_dml.cli import sources
    from keras_dml.evaluation.confidence import FEWEST_CLASSES
    from keras_dml.search.identification import WAYS_OUT

    if source is None:
        return None
    images = sources.read_images([source], recipe)
    if images.labels is None:
        raise ValueError(
            "--calibrate must be images with a class each. Received: "
            f"{source}, without classes. Use a folder with a folder for each."
        )
    count = images.num_classes
    if is_of_searches and count < FEWEST_CLASSES:
        logger.warning(
            "The index gets no threshold: --calibrate must hold at least %d "
            "classes, better 20. Received: %s, with %d. Searches show scores "
            "without saying which are matches. If the test has more classes, "
            "use --calibrate test. %s keras-dml search --threshold 0.6, or "
            "threshold=0.6 of Index.search.",
            FEWEST_CLASSES,
            source,
            count,
            WAYS_OUT,
        )
        return None
    return images


def _rows(built: "Index") -> list[list[str]]:
    rows = [["images", f"{len(built):,}"], ["dimensions", str(built.dim)]]
    rows.append(["kind", f"{built.factory} {built.parameters}".strip()])
    rows.append(["scores", built.metric])
    if built.recall is not None:
        rows += [
            [f"recall@{k} of exact search", f"{value:.4f}"]
            for k, value in built.recall.at.items()
        ]
        rows.append(["recall holds", built.recall.meaning])
    if built.threshold is not None:
        rows.append(["threshold", str(built.threshold)])
    return rows


_index_argument = click.argument(
    "place", metavar="INDEX", type=click.Path(exists=True, file_okay=False)
)

_where_option = click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Only rows with this value in a column; !=, <, <=, > and >= work too. "
    "May be repeated: a row needs one of the values given by = for a column, "
    "and must meet all other conditions.",
)

_model_of_option = click.option(
    "--model-of",
    "source",
    metavar="RUN_OR_MODEL",
    type=click.Path(exists=True),
    help="Run or .keras file with the model that made the index. Needed for "
    "an index that was saved without it.",
)


@index.command()
@_index_argument
@click.argument("data", nargs=-1, required=True)
@click.option(
    "--key",
    metavar="COLUMN",
    help="Column with keys of the new rows, for an index with keys. [default: "
    "the column that has the keys of the index]",
)
@click.option("--replace", is_flag=True, help="Replace rows of the same key.")
@_model_of_option
@common.command_body
def add(
    place: str,
    data: tuple[str, ...],
    key: str | None,
    replace: bool,
    source: str | None,
) -> None:
    """Add the images in DATA to the folder INDEX.

    DATA are folders of images, tables or lists, as for `keras-dml embed`. A
    class has the label of the class with the same name in the index. If
    anything fails, the index stays as it is.
    """
    from keras_dml.cli.sources import read_images
    from keras_dml.search.encoder import image_columns

    built = _load(place, source)
    images = read_images(data, None)
    new, keys, before = image_columns(images), built.keys, len(built)
    if key is None and before and keys != built.ids.tolist():
        columns = built.columns
        key = next((x for x in new if columns.get(x) == keys), "")
    if key is not None and key not in new:
        raise ValueError(
            f"--key must be a column of the images: {', '.join(new)}. "
            f"Received: {key!r}. The index has keys such as {keys[:1]}."
        )
    ids = built.add(images, keys=new.get(key or ""), replace=replace)
    built.save(place, include_model=source is None)
    replaced = before + len(ids) - len(built)
    common.answer(
        {"added": len(ids), "replaced": replaced, "images": len(built)}
    )
    text = f"Added {len(ids):,} images to {place}, {replaced:,} for others"
    common.say(f"{text}: {len(built):,} images.")


@index.command()
@_index_argument
@click.option(
    "--key",
    "texts",
    multiple=True,
    metavar="KEY",
    help="Key of a row, or its number if rows have no keys; may be repeated.",
)
@_where_option
@common.command_body
def remove(
    place: str, texts: tuple[str, ...], conditions: tuple[str, ...]
) -> None:
    """Remove images from the folder INDEX, by --key or by --where.

    If a key does not exist, the index stays as it is.
    """
    if bool(texts) == bool(conditions):
        raise click.UsageError("Use either --key or --where.")
    built = _load(place, None)
    where = read_conditions(conditions, built.columns) or None
    by_text = {str(key): key for key in built.keys}
    if unknown := [text for text in texts if text not in by_text]:
        raise ValueError(
            f"--key must be the key of a row of {place}. Received: "
            f"{unknown[0]!r}. `keras-dml search` shows keys."
        )
    keys = [by_text[text] for text in texts] or None
    count = built.remove(keys, where=where)
    built.save(place)
    common.answer({"removed": count, "images": len(built)})
    common.say(f"Removed {count:,} from {place}: {len(built):,} images.")


def _load(place: str, source: str | None) -> "Index":
    """Loads an index, with the model of a run or file if `source` is one."""
    from keras_dml.cli.sources import read_model
    from keras_dml.search import Index

    model = None if source is None else read_model(source, "best")[0]
    return Index.load(place, model)


@common.command(
    "keras-dml train photographs --output runs/p --set epochs=1",
    "keras-dml index runs/p test --output indexes/p",
    "keras-dml search query.jpg --index indexes/p --where "
    "name=crow --html found.html",
)
@click.argument(
    "images",
    metavar="IMAGE...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False),
)
@click.option(
    "--index",
    "place",
    required=True,
    metavar="FOLDER",
    help="Folder of the index.",
)
@_model_of_option
@click.option(
    "-k",
    type=click.IntRange(min=1),
    default=10,
    help="Number of images to find.",
)
@click.option(
    "--threshold",
    type=float,
    help="Minimum score of a match. [default: the calibrated one]",
)
@_where_option
@click.option(
    "--all",
    "finds_all",
    is_flag=True,
    help="Find all images that reach the threshold, instead of the -k nearest.",
)
@click.option(
    "--html",
    "page",
    type=click.Path(dir_okay=False, writable=True),
    help="Also write a page with the images found.",
)
@common.trust_option
@common.command_body
def search(
    images: tuple[str, ...],
    place: str,
    source: str | None,
    k: int,
    threshold: float | None,
    conditions: tuple[str, ...],
    finds_all: bool,
    page: str | None,
) -> None:
    """Find the images of an index that are most similar to each IMAGE.

    Each call loads the model, which takes seconds. For many queries, use
    `keras-dml serve`.
    """
    from keras_dml.reports.html import caption, results_page
    from keras_dml.utils.files import write_atomically

    index = _load(place, source)
    where = read_conditions(conditions, index.columns) or None
    if finds_all:
        hits = index.range_search(list(images), threshold, where=where)
    else:
        hits = index.search(list(images), k, threshold=threshold, where=where)
    pairs = [*zip(images, hits, strict=True)]
    common.answer(
        {
            "index": place,
            "metric": hits.metric,
            "threshold": hits.threshold,
            "threshold_meaning": hits.meaning,
            "queries": [{"image": path, "hits": row} for path, row in pairs],
        }
    )
    answers = {True: "yes", False: "no", None: ""}
    # Paths in the working directory are relative to it.
    here = f"{os.getcwd()}{os.sep}"
    for path, row in pairs:
        table = [["", "score", "match", "class", "key", "file"]]
        for rank, hit in enumerate(row, 1):
            file = str(hit.row.get("path") or "").removeprefix(here)
            score, is_match = f"{hit.score:.4f}", answers[hit.is_match]
            cells = [str(rank), score, is_match, caption(hit.row)]
            table.append([*cells, str(hit.key), file])
        title = path
        if row and row[0].is_match:
            title += ": match"
        elif hits.threshold is not None:
            title += (
                f": no match, because no score reaches {hits.threshold:.4f}"
            )
        common.print_table(table, title, whole=True)
    if hits.threshold is not None and hits.meaning:
        common.say(f"The threshold {hits.threshold:.4f} is {hits.meaning}.")
    if page is not None:
        write_atomically(page, results_page(images, hits))
        common.say(f"Page written to {page}")


def read_conditions(
    texts: Sequence[str], columns: Mapping[str, Sequence[Any]]
) -> dict[str, dict[str, Any]]:
    """Parses conditions such as "price>=10" for `Index.search`.

    The values of a column determine the type of a text.
    """
    where: dict[str, dict[str, Any]] = {}
    for text in texts:
        match = _CONDITION.fullmatch(text)
        if not match:
            raise ValueError(
                "--where must be written column=value, or with !=, <, <=, > "
                f"or >=. Received: {text!r}. For instance name=crow."
            )
        name, sign, value = match.groups()
        condition = where.setdefault(name, {})
        column = columns.get(name, ())
        lists = [x for x in column if isinstance(x, list)]
        if lists and sign == "=":
            values = _values(text, value, [x for row in lists for x in row])
            condition.setdefault("contains", []).extend(values)
            continue
        values = _values(text, value, column)
        if sign in ("=", "!="):
            operator = "==" if sign == "=" else sign
            condition.setdefault(operator, []).extend(values)
        elif sign in condition:
            raise ValueError(
                f"--where must not use {sign} more than once for a column. "
                f"Received: {text!r} after another one."
            )
        else:
            condition[sign] = values[-1]
    return where


def _values(text: str, value: str, column: Sequence[Any]) -> list[Any]:
    """The values that a text may stand for in a column."""
    kinds = set(map(type, column)) - {type(None)}
    values: list[Any] = [value] if not kinds or str in kinds else []
    if bool in kinds and value.lower() in ("true", "false"):
        values.append(value.lower() == "true")
    if kinds & {int, float}:
        for number in (int, float):
            with contextlib.suppress(ValueError):
                values.append(number(value))
                break
    if not values:
        raise ValueError(
            "--where must compare a column with values of its own kind. "
            f"Received: {text!r}, where the column holds values such as "
            f"{next(x for x in column if x is not None)!r}."
        )
    return values
