"""`evaluate`: all metrics of a model or of embeddings, from one search."""

from collections.abc import Sequence
from typing import Any

from keras_dml.embedding.engines import KERAS, Engine, check_engine
from keras_dml.evaluation import inputs
from keras_dml.evaluation.evaluation import Evaluation
from keras_dml.evaluation.inputs import Protocols, Relation
from keras_dml.evaluation.metrics import MetricLike
from keras_dml.evaluation.ranks.search import DistanceFunction
from keras_dml.evaluation.reranking import Kind
from keras_dml.evaluation.results import Results

DEFAULT_METRICS = ("recall@k", "r_precision", "map@r")


def evaluate(
    model: Any,
    examples: Any,
    labels: Any = None,
    *,
    metrics: MetricLike | Sequence[MetricLike] = DEFAULT_METRICS,
    ks: Sequence[int] = (1, 2, 4, 8),
    distance: str | DistanceFunction = "cosine",
    gallery: Any = None,
    gallery_labels: Any = None,
    protocol: Protocols = None,
    exclude: Any = None,
    relevance: str = "any",
    levels: Sequence[str] | None = None,
    prefixes: Sequence[int] | None = None,
    parts: int | None = None,
    rerank: Kind | Sequence[Kind] | None = None,
    memory: int | str = "512MB",
    seeds: Sequence[int] = (0,),
    batch_size: int = 256,
    progress: bool | None = None,
    engine: Engine = KERAS,
) -> Results:
    """Measures how well a model's embeddings retrieve and cluster classes.

    The examples are embedded in their test view; `evaluate_embeddings`
    describes what is computed from the embeddings, and how.

    Args:
        model: A Keras model whose output is the embedding, (B, D).
        examples: An `ImageSet`, `ArraySet` or other `Examples`, with labels;
            arrays `(x, y)`; or a finite `tf.data.Dataset` or `PyDataset` of
            (x, y). See `embed`.
        labels: Labels to measure by, see `evaluate_embeddings`; by default
            those of the examples.
        metrics, ks, distance, relevance, levels, prefixes, parts, rerank,
            memory, seeds, progress: See `evaluate_embeddings`.
        gallery: Examples to search, of any of these kinds, unless the examples
            are searched among themselves, as they are if `gallery` is the same
            set.
        gallery_labels: Labels of the gallery, in the same form as `labels`.
        protocol: Without `gallery`: which examples query which; see
            `evaluate_embeddings`.
        exclude: Group of every example, (N,), or a pair of groups for examples
            and gallery; see `evaluate_embeddings`.
        batch_size: Number of examples to embed at a time.
        engine: Engine for the examples: "keras", "openvino", an exported file
            or a function; see `embed`.

    Returns:
        The metrics by name, the number of queries and more; see
        `evaluation.Results`.

    Raises:
        ImportError, FileNotFoundError: If the engine is not there.
        ValueError: If an argument is not as described, embeddings are not
            finite, or no query has a relevant image.

    Example:
        >>> results = evaluate(model, images, metrics=("map@r", "nmi"))
        >>> results["map@r"]
    """
    check_engine("evaluate", engine)
    evaluation = Evaluation(
        "evaluate",
        metrics=metrics,
        ks=ks,
        distance=distance,
        protocol=protocol,
        prefixes=prefixes,
        parts=parts,
        rerank=rerank,
        memory=memory,
        seeds=seeds,
        progress=progress,
    )
    embedded = inputs.from_model(
        model,
        examples,
        labels,
        gallery=gallery,
        gallery_labels=gallery_labels,
        relation=Relation(exclude, relevance, levels),
        batch_size=batch_size,
        progress=progress,
        engine=engine,
    )
    return evaluation.of(embedded)


def evaluate_embeddings(
    embeddings: Any,
    labels: Any = None,
    *,
    metrics: MetricLike | Sequence[MetricLike] = DEFAULT_METRICS,
    ks: Sequence[int] = (1, 2, 4, 8),
    distance: str | DistanceFunction = "cosine",
    gallery: Any = None,
    gallery_labels: Any = None,
    protocol: Protocols = None,
    exclude: Any = None,
    relevance: str = "any",
    levels: Sequence[str] | None = None,
    prefixes: Sequence[int] | None = None,
    parts: int | None = None,
    rerank: Kind | Sequence[Kind] | None = None,
    memory: int | str = "512MB",
    seeds: Sequence[int] = (0,),
    cluster_sample: int | None = None,
    progress: bool | None = None,
) -> Results:
    """Measures how well embeddings retrieve and cluster their classes.

    All retrieval metrics come from one exact search. An image never retrieves
    itself, although it may retrieve its duplicates. Images with equal scores
    are ranked in the order of the gallery. Queries without a relevant image
    are excluded and counted.

    Comparisons that float32 rounding could reverse are decided in float64, so
    ranks are those of scores summed in float64: they depend neither on
    `memory` nor on the matrix library and its threads, and duplicates have
    exactly equal scores.

    Args:
        embeddings: (N, D), or `EmbeddingShards`. Shards and embeddings in a
            file, a `np.memmap`, are read block by block and never held in
            memory as a whole, except for `rerank`, a distance function, and
            K-means without `cluster_sample`. Shards are first written to one
            temporary file; `shards.array(cache)` keeps it.
        labels: Class of every row, (N,) integers, or strings, which are
            numbered in alphabetical order; for several labels per row, (N, C)
            zeros and ones, dense or sparse, or N sets; for a hierarchy,
            classes by level, or (N, L) with `levels`. By default the labels
            stored in shards.
        metrics: Names in `evaluation.METRICS`, which lists them with their
            definitions: "recall@k", "map@r", "nmi", … k is a number, or the
            letter, which stands for each of `ks`; "macro/" before a name gives
            the mean over classes. Or functions that are not registered.
            Clusters are computed by K-means in 20 iterations, with as many
            clusters as there are classes.
        ks: Values that the letter k stands for.
        distance: "cosine", "euclidean" or "dot". Metrics of clusters and of
            the embedding space are Euclidean; for "cosine", of unit vectors.
            Or a function of queries, (n, D), and gallery, (G, D), that returns
            distances, (n, G), which are then all sorted.
        gallery: Embeddings to search, (G, D), unless the queries are searched
            among themselves, as they are if `gallery` is the same array.
            Metrics of clusters and of the embedding space are those of the
            union.
        gallery_labels: Class of every row of the gallery, (G,), or another
            form described under `labels`.
        protocol: Without `gallery`: which rows query which. "all_vs_all"
            (default); "official", that of VehicleID (see
            `evaluation.one_per_class`); a `Protocol`; or several, over which
            results are averaged.
        exclude: Group of every row, (N,) integers or strings, or a pair of
            groups for queries and gallery. A query ignores images of its own
            class in its own group: if groups are cameras, this is the rule of
            Market-1501 and VeRi-776. -1 and None are unknown groups, in which
            nothing is ignored.
        relevance: With several labels per row, which rows are relevant: "any",
            those that share a label with the query; "all", those that have the
            same labels; "shared" and "jaccard", the same as "any", but the
            gain of nDCG is the number of shared labels, or that number divided
            by the number of labels that either has.
        levels: Names of the columns of `labels`, or its keys to use. All
            levels are measured in one search; the results are named
            "species/recall@1".
        prefixes: Sizes: this number of leading dimensions is also measured as
            an embedding of its own. Results are named "64/recall@1".
        parts: Number of consecutive slices of the embedding, ⌈D/K⌉ dimensions
            each, that are measured as embeddings of their own: K learners, K
            groups, K tasks. Results are named "part1/recall@1" and so on, and
            their mean "parts/recall@1".
        rerank: Re-ranking to apply before measuring: a name in
            `evaluation.RERANKING`, a name and arguments such as {"name":
            "k_reciprocal", "k1": 20}, an object, or several that are applied
            in order. Only metrics of ranks change.
        memory: Memory for the search in addition to the embeddings, in bytes
            or as a text such as "512MB"; up to 10 MB per thread are added.
            Twice the size of the embeddings allows the fastest algorithm.
        seeds: Seeds of K-means, over which results are averaged.
        cluster_sample: Number of random rows from which the centroids of
            K-means are computed, see `kmeans`; by default all. Required if the
            embeddings are in files and do not fit into `memory`.
        progress: Whether to show progress, after two seconds; None shows it in
            a terminal.

    Returns:
        The metrics by name, the number of queries and more; see
        `evaluation.Results`.

    Raises:
        ValueError: If an argument is not as described, embeddings are not
            finite, no query has a relevant image, or a shard is damaged.
        OSError: If a shard is missing, or there is not enough space for files.

    Example:
        >>> results = evaluate_embeddings(embeddings, labels, metrics="map@r")
        >>> results["map@r"]
    """
    evaluation = Evaluation(
        "evaluate_embeddings",
        metrics=metrics,
        ks=ks,
        distance=distance,
        protocol=protocol,
        prefixes=prefixes,
        parts=parts,
        rerank=rerank,
        memory=memory,
        seeds=seeds,
        progress=progress,
        cluster_sample=cluster_sample,
    )
    embedded = inputs.from_embeddings(
        embeddings,
        labels,
        gallery=gallery,
        gallery_labels=gallery_labels,
        relation=Relation(exclude, relevance, levels),
    )
    return evaluation.of(embedded)


def check_evaluation(
    owner: str,
    examples: Any,
    *,
    labels: Any = None,
    gallery: Any = None,
    gallery_labels: Any = None,
    exclude: Any = None,
    relevance: str = "any",
    levels: Sequence[str] | None = None,
    **measured: Any,
) -> tuple[str, ...] | None:
    """Checks arguments of `owner`, those of `evaluate`, without embeddings.

    Returns the names of the results, or None for a `tf.data.Dataset`, which has
    to be read first.
    """
    evaluation = Evaluation(owner, **measured)
    unembedded = inputs.of_examples(
        examples,
        labels,
        gallery=gallery,
        gallery_labels=gallery_labels,
        relation=Relation(exclude, relevance, levels),
        owner=owner,
    )
    if unembedded is None:
        return None
    evaluation.check(unembedded)
    return evaluation.names(unembedded)
