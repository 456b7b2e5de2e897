"""Answers of a server, in a process without Keras."""

import io
from pathlib import Path
from typing import Any

import keras
import numpy as np
import PIL.Image
import pytest

from tests.export.serving import (
    answers,
    assert_same,
    file_of,
    predict,
    random_images,
    request,
    signatures,
)

pytestmark = pytest.mark.slow

SIZES = ((16, 16), (16, 24), (41, 23), (7, 50))
GRAYS = [random_images(*size, 1) for size in SIZES]
COLORS = [random_images(*size, 3) for size in SIZES]
FILES = [
    *(file_of(x) for x in COLORS),
    *(file_of(x, "JPEG") for x in COLORS),
    *(file_of(x) for x in GRAYS),
]
BAD = [b"", b"text", FILES[0][:-30], FILES[5][: len(FILES[5]) // 2]]
MIXED = [BAD[0], FILES[0], BAD[1], BAD[2], FILES[5], BAD[3]]
BATCHES = {
    "pixels": [random_images(3, *size, 1) for size in SIZES],
    "no pixels": [np.zeros((0, 30, 20, 1), np.uint8)],
    "files": [FILES, [FILES[2]]],
    "no files": [np.zeros((0,), object)],
    "mixed": [MIXED],
    "all bad": [BAD],
}
OWN_K = {
    "mixed": np.int32([1, 40, 41, 0, 0, 3]),
    "no files": np.zeros(0, np.int32),
    "all bad": np.int32([2, 1]),
}


@pytest.fixture(scope="module")
def served(exported: Path) -> dict[str, Any]:
    """Answers to all batches, by signature and name: of one server."""
    keys, requests = [], []
    for name, batches in BATCHES.items():
        signatures = ["encoded", "lookup"]
        if "pixels" in name:
            signatures = ["serving_default"]
            batches = [x.astype("float32") for x in batches]
        for signature in signatures:
            keys += [f"{signature}: {name}"] * len(batches)
            requests += [request(signature, batch) for batch in batches]
    for name, ks in OWN_K.items():
        keys.append(f"lookup_k: {name}")
        requests.append(request("lookup_k", BATCHES[name][0], k=ks))
    result: dict[str, Any] = {key: [] for key in keys}
    for key, answer in zip(keys, answers(exported, requests), strict=True):
        result[key].append(answer)
    return result


def decoded(file: bytes) -> Any:
    """Pixels as Pillow has them, (1, H, W, C)."""
    pixels = np.asarray(PIL.Image.open(io.BytesIO(file)))
    return pixels.reshape(1, *pixels.shape[:2], -1)


def expected(model: keras.Model, files: list[bytes]) -> Any:
    return np.concatenate([predict(model, decoded(x)) for x in files])


def test_served_pixels_match_predict(model, served) -> None:
    pairs = zip(
        served["serving_default: pixels"], BATCHES["pixels"], strict=True
    )
    for answer, images in pairs:
        assert answer.keys() == {"embedding"}
        assert_same(answer["embedding"], predict(model, images))


def test_served_files_match_predict(model, served) -> None:
    together, alone = served["encoded: files"]
    assert together["status"].tolist() == [b"ok"] * len(FILES)
    assert_same(together["embedding"], expected(model, FILES))
    assert_same(alone["embedding"], together["embedding"][2:3])
    norms = np.linalg.norm(together["embedding"], axis=1)
    np.testing.assert_allclose(norms, 1, atol=1e-5)
    # Else all of the above would hold for a constant embedding, too.
    assert np.ptp(together["embedding"], axis=0).max() > 0.01


def test_bad_files_leave_the_others_alone(model, served) -> None:
    [answer] = served["encoded: mixed"]
    assert answer["status"].tolist() == [
        b"unsupported", b"ok", b"unsupported", b"damaged", b"ok", b"damaged",
    ]  # fmt: skip
    good = answer["status"] == b"ok"
    assert not answer["embedding"][~good].any()
    assert_same(
        answer["embedding"][good], expected(model, [MIXED[1], MIXED[4]])
    )


def test_empty_batches_have_empty_answers(served) -> None:
    [pixels] = served["serving_default: no pixels"]
    assert pixels["embedding"].shape == (0, 8)
    [files] = served["encoded: no files"]
    assert files["embedding"].shape == (0, 8) and files["status"].shape == (0,)
    [answer] = served["lookup: no files"]
    shapes = {name: x.shape for name, x in answer.items()}
    assert shapes.pop("status") == (0,)
    assert set(shapes.values()) == {(0, 3)}


def test_lookup_finds_the_nearest(model, gallery, served) -> None:
    together, _ = served["lookup: files"]
    cosines = expected(model, FILES) @ gallery.embeddings.T
    highest = -np.sort(-cosines, axis=1)[:, :3]
    np.testing.assert_allclose(together["scores"], highest, atol=1e-5)
    above = together["above_threshold"]
    np.testing.assert_array_equal(
        above, together["scores"] >= np.float32(0.9999)
    )
    assert above.any() and not above.all()
    # Ids are of the gallery, not rows, and labels are theirs.
    labels = dict(zip(gallery.ids.tolist(), gallery.labels, strict=True))
    assert set(together["ids"].ravel()) <= labels.keys()
    assert (
        together["labels"] == np.vectorize(labels.get, "O")(together["ids"])
    ).all()
    assert "é".encode() in together["labels"][0, 0]


def test_each_image_has_its_own_k(served) -> None:
    [mixed], [together, _] = served["lookup_k: mixed"], served["lookup: files"]
    assert mixed["status"].tolist()[3:5] == [b"damaged", b"k out of range"]
    np.testing.assert_array_equal(mixed["ids"][1, :3], together["ids"][0])
    [nothing] = served["lookup_k: no files"]
    assert nothing["ids"].shape == (0, 1)
    assert "`k` of lookup_k must have one" in served["lookup_k: all bad"][0]


def test_all_outputs_can_be_batched_by_the_server(exported: Path) -> None:
    # It joins requests along the first axis, and cuts answers along it.
    for signature in signatures(exported).values():
        outputs = signature.structured_outputs.values()
        inputs = signature.structured_input_signature[1].values()
        assert [x.shape[0] for x in [*outputs, *inputs]] == [None] * (
            len(outputs) + len(inputs)
        )
