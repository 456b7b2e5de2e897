"""Tests of pairs and triplets as data, and of batches of them."""

import keras
import numpy as np
import pytest

import keras_dml as dml
from keras_dml import data
from keras_dml.data import PairSet, RelationSampler, TripletSet, read_trials
from tests.data.archive_files import write_image

EXAMPLES = data.ArraySet(np.arange(20, dtype=np.float32).reshape(10, 2))


def test_pairs_give_a_relation_matrix() -> None:
    pairs = PairSet(EXAMPLES, [[0, 1], [2, 1], [3, 4]], [1, 0, 1])
    assert pairs.between(np.array([1, 0, 2, 1])).tolist() == [
        [-1, 1, 0, -1],
        [1, -1, -1, 1],
        [0, -1, -1, 0],
        [-1, 1, 0, -1],
    ]
    assert pairs.between(np.array([0, 4, 3]), unknown=0).tolist() == [
        [-1, 0, 0],
        [0, -1, 1],
        [0, 1, -1],
    ]


def test_triplets_give_a_relation_matrix() -> None:
    triplets = TripletSet(EXAMPLES, [[0, 1, 2], [0, 3, 2]])
    assert len(triplets) == 2
    assert triplets.between(np.array([0, 1, 2, 3])).tolist() == [
        [-1, 1, 0, 1],
        [1, -1, -1, -1],
        [0, -1, -1, -1],
        [1, -1, -1, -1],
    ]


def test_sampler_goes_through_all_tuples() -> None:
    rows = np.stack([np.arange(8), np.arange(8) + 1, np.arange(8) + 2], 1)
    triplets = TripletSet(EXAMPLES, rows[::3])
    sampler = RelationSampler(triplets, tuples_per_batch=1)
    assert sampler.steps == 3
    plan = sampler.plan(0)
    assert sorted(map(tuple, plan)) == sorted(map(tuple, rows[::3]))
    np.testing.assert_array_equal(plan, sampler.plan(0))
    assert not np.array_equal(plan, sampler.plan(1)) or not np.array_equal(
        plan, sampler.plan(2)
    )


@pytest.mark.parametrize("others", ["ignore", "negative"])
def test_batches_hold_pairs_and_their_relation(others) -> None:
    pairs = PairSet(EXAMPLES, [[0, 1], [2, 3], [4, 5]])
    sampler = RelationSampler(pairs, tuples_per_batch=3, others=others)
    ((x, y),) = data.pipeline(EXAMPLES, sampler)
    rows = y["index"].numpy()
    np.testing.assert_array_equal(x, EXAMPLES.inputs(rows))
    unknown = {"ignore": -1, "negative": 0}[others]
    np.testing.assert_array_equal(y["label"], pairs.between(rows, unknown))
    assert y["label"].shape == (6, 6)
    # Anchors, then their partners.
    assert (rows[3:] == rows[:3] + 1).all()


def test_triplet_loss_matches_a_loop_over_the_triplets() -> None:
    """The reference is a loop over the batch's triplets."""
    rng = np.random.default_rng(0)
    embeddings = keras.ops.normalize(rng.normal(size=(9, 4)).astype("float32"))
    triplets = TripletSet(EXAMPLES, [[0, 1, 2], [3, 4, 5], [6, 7, 8]])
    loss = dml.losses.TripletLoss(margin=0.5, distance="squared", mining="all")
    relation = triplets.between(np.arange(9))
    values = loss.per_example(relation, embeddings)
    e = np.asarray(embeddings)
    naive = [
        max(0.0, ((e[a] - e[p]) ** 2).sum() - ((e[a] - e[n]) ** 2).sum() + 0.5)
        for a, p, n in triplets.rows
    ]
    # The mean over examples is the mean over triplets.
    np.testing.assert_allclose(np.mean(values), np.mean(naive), rtol=1e-5)
    assert not np.any(np.delete(np.asarray(values), [0, 3, 6]))


def pairs_of(*arguments: object) -> PairSet:
    return PairSet(EXAMPLES, *arguments)


REFUSED = {
    "shape": lambda: pairs_of([]),
    "must not be empty": lambda: pairs_of(np.empty((0, 2), int)),
    r"\(M, 2\)": lambda: pairs_of([[0, 1, 2]]),
    "dtype float64": lambda: pairs_of([[0, 1.5]]),
    "row 10": lambda: pairs_of([[0, 10]]),
    "itself.*row 3": lambda: pairs_of([[3, 3]]),
    r"both positive and negative.*rows \[0, 1\]": lambda: pairs_of(
        [[0, 1], [1, 0]], [1, 0]
    ),
    "`positive` of PairSet.*threshold": lambda: pairs_of([[0, 1]], [0.5]),
    "Examples.*list": lambda: PairSet([[0.0]], [[0, 1]]),
    "tuples_per_batch=2 for PairSet": lambda: RelationSampler(
        pairs_of([[0, 1]]), 2
    ),
    "PairSet or a Trip": lambda: RelationSampler([[0, 1]]),
    "relations of `examples`": lambda: data.pipeline(
        EXAMPLES.select([0, 1]), RelationSampler(pairs_of([[0, 1]]), 1)
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_unfit_relations_raise(message) -> None:
    error = IndexError if message == "row 10" else ValueError
    with pytest.raises(error, match=f"(?s){message}"):
        REFUSED[message]()


TEXTS = data.ArraySet(
    np.array(["egg", "boil", "cook", "dog", "hound", "car", "auto", "egg"])
)
CHAINED = [[0, 1], [0, 2], [3, 4], [5, 6]]


def test_transitive_pairs_connect_components_and_equal_contents() -> None:
    pairs = PairSet(TEXTS, [*CHAINED, [1, 3]], [1, 1, 1, 1, 0], transitive=True)
    relation = pairs.between(np.arange(8), unknown=0)
    groups = np.array([0, 0, 0, 1, 1, 2, 2, 0])
    expected = (groups[:, None] == groups).astype(int)
    np.fill_diagonal(expected, -1)
    np.testing.assert_array_equal(relation, expected)
    # A negative pair holds for all of both components, and no others.
    relation_of_chains = pairs.between(np.array([2, 4, 6, 7]))
    assert relation_of_chains.tolist() == [
        [-1, 0, -1, 1],
        [0, -1, -1, 0],
        [-1, -1, -1, -1],
        [1, 0, -1, -1],
    ]
    # By default only the given pairs are known.
    plain_relation = PairSet(TEXTS, CHAINED).between(np.array([1, 2, 0, 7]), 0)
    assert plain_relation.tolist() == [
        [-1, 0, 1, 0],
        [0, -1, 1, 0],
        [1, 1, -1, 0],
        [0, 0, 0, -1],
    ]


def test_transitive_triplets_connect_positives() -> None:
    triplets = TripletSet(TEXTS, [[0, 1, 3], [1, 2, 5]], transitive=True)
    relation = triplets.between(np.array([0, 2, 3, 5]))
    assert relation.tolist() == [
        [-1, 1, 0, 0],
        [1, -1, 0, 0],
        [0, 0, -1, -1],
        [0, 0, -1, -1],
    ]


@pytest.mark.parametrize("pair", [[1, 2], [0, 7], [7, 2]])
def test_contradictory_transitive_pairs_raise(pair) -> None:
    all_pairs = [*CHAINED, pair]
    PairSet(TEXTS, all_pairs, [1, 1, 1, 1, 0])
    with pytest.raises(ValueError, match=rf"{sorted(pair)}".strip("[]")):
        PairSet(TEXTS, all_pairs, [1, 1, 1, 1, 0], transitive=True)


def test_images_of_equal_files_are_connected(tmp_path) -> None:
    paths = []
    for number, gray in enumerate([0, 9, 0, 9]):
        paths.append(tmp_path / f"{number}.png")
        keras.utils.save_img(paths[-1], np.full((4, 4, 1), gray), scale=False)
    images = data.ImageSet(paths)
    pairs = PairSet(images, [[0, 1]], transitive=True)
    assert pairs.between(np.arange(4)).sum() == 12 - 4
    boxes = [[0, 0, 2, 2], [0, 0, 2, 2], [0, 0, 3, 3], [0, 0, 2, 2]]
    boxed = PairSet(
        data.ImageSet(paths, boxes=boxes), [[0, 1]], transitive=True
    )
    assert boxed.between(np.arange(4))[2].tolist() == [-1] * 4


def test_batches_without_duplicates_repeat_no_content() -> None:
    rng = np.random.default_rng(0)
    texts = data.ArraySet(np.array([str(i % 150) for i in range(200)]))
    rows = rng.integers(0, 200, (400, 2))
    rows = rows[rows[:, 0] % 150 != rows[:, 1] % 150]
    pairs = PairSet(texts, rows)

    def repeated(**options) -> int:
        """Number of batches in which two tuples share contents."""
        sampler = RelationSampler(pairs, tuples_per_batch=16, **options)
        count = 0
        for epoch in range(2):
            plan = sampler.plan(epoch)
            assert plan.shape == (sampler.steps, 32)
            np.testing.assert_array_equal(plan, sampler.plan(epoch))
            count += sum(len(np.unique(x % 150)) < 32 for x in plan)
        return count

    assert repeated() > 40
    assert repeated(no_duplicates=True) == 0


def test_nearly_all_pairs_are_drawn_without_duplicates() -> None:
    rows = np.stack([np.arange(90), np.arange(90) + 100], 1)
    examples = data.ArraySet(np.arange(200, dtype=np.float32)[:, None])
    pairs = PairSet(examples, np.concatenate([rows, [[0, 101], [0, 102]]]))
    sampler = RelationSampler(pairs, tuples_per_batch=4, no_duplicates=True)
    drawn = {tuple(x) for x in sampler.plan(0).reshape(-1, 2, 4)
             .transpose(0, 2, 1).reshape(-1, 2)}  # fmt: skip
    assert len(drawn) >= len(pairs) - 4


LETTERS = data.ArraySet(np.array([*"abcdefghijklmnopqrstuvwxyzabcdefgh"]))
CHAIN = [[i, i + 1] for i in range(25)]
RELATIONS = {
    "chain": (PairSet, CHAIN, 13),
    "cycle": (PairSet, [*CHAIN[:8], [8, 0]], 4),
    "star": (PairSet, [[0, i] for i in range(1, 9)], 1),
    "star of equal contents": (PairSet, [[i * 26, i + 1] for i in range(2)], 1),
    "triangles": (
        PairSet,
        [[a + i, a + (i + 1) % 3] for a in (0, 3, 6) for i in range(3)],
        3,
    ),
    "one of every two alike": (PairSet, [[0, 26], [1, 27], [0, 1], [2, 3]], 3),
    "group": (PairSet, [[i, j] for i in range(7) for j in range(i)], 3),
    "twice": (PairSet, [[0, 1], [1, 0], [2, 3], [2, 3]], 2),
    "triplets in a chain": (
        TripletSet, [[i, i + 1, i + 2] for i in range(20)], 7,
    ),
    "triplets of a plane": (
        TripletSet,
        [[0, 1, 2], [0, 3, 4], [0, 5, 6], [1, 3, 5], [1, 4, 6], [2, 3, 6],
         [2, 4, 5]],
        1,
    ),
}  # fmt: skip
"""Tuples, and the largest number of them without common contents."""


@pytest.mark.parametrize("kind", RELATIONS)
def test_largest_batch_without_duplicates_is_filled_in_every_epoch(
    kind,
) -> None:
    make, rows, largest = RELATIONS[kind]
    relations = make(LETTERS, rows)
    for size in {largest, max(1, largest - 1)}:
        sampler = RelationSampler(relations, size, no_duplicates=True)
        drawn: set[tuple[int, ...]] = set()
        for epoch in range(30):
            plan = sampler.plan(epoch)
            assert plan.shape == (sampler.steps, size * len(rows[0]))
            np.testing.assert_array_equal(plan, sampler.plan(epoch))
            for batch in plan.reshape(sampler.steps, -1, size):
                tuples = [*map(tuple, batch.T.tolist())]
                drawn |= {*tuples}
                contents = [{x % 26 for x in row} for row in tuples]
                assert len(set.union(*contents)) == sum(map(len, contents))
        assert drawn <= set(map(tuple, rows))
        if size < largest:  # Every tuple has its turn.
            assert len(drawn) == len(set(map(tuple, rows)))


@pytest.mark.parametrize("kind", RELATIONS)
def test_too_large_batch_without_duplicates_raises_at_once(kind) -> None:
    make, rows, largest = RELATIONS[kind]
    if largest == len(rows):
        return
    message = f"of which {largest} have none in common. Use tuples_per_ba"
    with pytest.raises(ValueError, match=message):
        RelationSampler(make(LETTERS, rows), largest + 1, no_duplicates=True)


def test_sampler_warns_where_little_choice_is_left(caplog) -> None:
    RelationSampler(PairSet(LETTERS, CHAIN[:5]), 2, no_duplicates=True)
    assert not caplog.records
    pairs = PairSet(LETTERS, [CHAIN[i] for i in (1, 0, 2, 3, 4)])
    RelationSampler(pairs, 3, no_duplicates=True)
    assert "at most 3 of 5 have no examples in common" in caplog.text


FACES = ["Ann/Ann_0001.jpg", "Ann/Ann_0004.jpg", "Bob B/Bob B_0012.jpg"]
LISTS = {
    "vox.txt": "1 {0} {1}\n0 {0} {2}\n\n0 {2} {1}\n",
    "pairs.csv": "name_a,name_b,label\r\n{0},{1},1\r\n{0}, {2} ,0\r\n{2},{1},0",
    "plain.CSV": "{0},{1},1\n{0},{2},0\n{2},{1},0\n",
    "pairs.txt": "10\t300\nAnn\t1\t4\nAnn\t1\tBob_B\t12\nBob_B\t12\tAnn\t4\n",
    "dev.txt": "3\nAnn 1 4\nAnn 1 Bob_B 12\nBob_B 12 Ann 4\n",
}


@pytest.mark.parametrize("name", LISTS)
def test_trials_are_read_from_text_files(name, tmp_path) -> None:
    # Only a table has names with spaces.
    is_table = name.lower().endswith(".csv")
    faces = [x if is_table else x.replace(" ", "_") for x in FACES]
    root = tmp_path / "faces"
    for face in faces:
        write_image(root / face)
    (tmp_path / name).write_text(LISTS[name].format(*faces), "utf-8-sig")
    expected = [[0, 1], [0, 2], [2, 1]]
    pairs = read_trials(tmp_path / name, root)
    assert pairs.rows.tolist() == expected
    assert pairs.positive.tolist() == [True, False, False]
    assert pairs.examples.paths == tuple(str(root / x) for x in faces)
    # Of the image folder, by the ends of paths; among others.
    write_image(root / "Zoe" / "Zoe_0001.jpg")
    folder = data.image_folder(root)
    for images in (folder, data.concatenate([folder, folder.select([0])])
                   .select([3, 2, 1, 0])):  # fmt: skip
        pairs = read_trials(tmp_path / name, images)
        assert pairs.examples is images
        path_pairs = [[images.paths[x] for x in row] for row in pairs.rows]
        assert path_pairs == [
            [str(root / faces[x]) for x in y] for y in expected
        ]
    # As ids, in another order, among others.
    ids = ["other", *faces[::-1]]
    examples = data.ArraySet(np.eye(4, dtype=np.float32), ids=ids)
    pairs = read_trials(tmp_path / name, examples)
    assert pairs.rows.tolist() == [[3 - i, 3 - j] for i, j in expected]
    x = np.array([[0, 1], [1, 1], [1, 0.1], [1, 0]])
    results = dml.evaluation.evaluate_trials(x, pairs, ("eer", "tpr@fpr=0.5"))
    assert (results["eer"].estimate, results["tpr@fpr=0.5"].estimate) == (0, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 1.png b/2.png\n", "without 1 of 2, such as '1.png'"),
        ("1 a/1.png c/1.png\n", "without 1 of 2, such as 'c/1.png'"),
        ("1 x/a/1.png b/1.png\n", "without 1 of 2, such as 'x/a/1.png'"),
        ("1 /1.png b/1.png\n", "without 1 of 2, such as '/1.png'"),
    ],
)
def test_trials_must_name_one_image_each(text, message, tmp_path) -> None:
    for name in ("a/1.png", "b/1.png", "b/2.png"):
        write_image(tmp_path / "faces" / name)
    images = data.image_folder(tmp_path / "faces")
    (tmp_path / "list.txt").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_trials(tmp_path / "list.txt", images)
    (tmp_path / "list.txt").write_text("1 ./a/1.png 2.png\n")
    assert read_trials(tmp_path / "list.txt", images).rows.tolist() == [[0, 2]]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "1 a b\n2 a c\n", "must be a trial.*'2 a c'"),
        ("a.txt", "Ann 1 4\n3 300\n", "must be a trial.*'3 300'"),
        ("a.csv", "a,b,2\na,c,1\n", "must be a trial.*'a b 2'"),
        ("a.csv", "x,y,label\na,b,same\n", "must be a trial.*'a b same'"),
        (
            "a.txt",
            "1 a b\n0 a d\n",
            "ends so.*without 1 of 3, such as 'd'",
        ),
        ("a.txt", "300\n", "must not be empty"),
    ],
)
def test_unfit_trials_raise(name, text, message, tmp_path) -> None:
    (tmp_path / name).write_text(text)
    examples = data.ArraySet(np.eye(3, dtype=np.float32), ids=["a", "b", "c"])
    with pytest.raises(ValueError, match=message):
        read_trials(tmp_path / name, examples)
    if "without" in message:
        with pytest.raises(FileNotFoundError, match="do not exist"):
            read_trials(tmp_path / name, tmp_path)
