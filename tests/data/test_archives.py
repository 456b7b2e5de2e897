"""Tests of the benchmarks' archives, on small ones of exactly their formats."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from keras_dml.data import cars196, cub200, inshop, sop, vehicleid
from tests.data.archive_files import (
    PIXELS,
    write_image,
    write_lines,
    write_stray,
)

BIRDS = [
    f"{c:03d}.Bird_{c}/Bird_{c}_{i:04d}.jpg"
    for c in range(1, 7)
    for i in range(c + 1)
]
BIRD_LABELS = [int(name[:3]) for name in BIRDS]

# Classes beyond 127 and pixels beyond 255 show sums that wrap around.
CARS = 130
CAR_LABELS = np.repeat(np.arange(1, CARS + 1), 2)
CAR_BOXES = np.array([[1, 1, 12, 9], [3, 2, 5, 8]] * CARS)
LABELED = "cars_test_annos_withlabels.mat"

CLOTHES = [
    ("WOMEN/Dresses/id_00000002/02_1_front.jpg", "id_00000002", "train"),
    ("WOMEN/Dresses/id_00000002/02_2_side.jpg", "id_00000002", "train"),
    ("WOMEN/Tees_Tanks/id_00000001/02_1_front.jpg", "id_00000001", "query"),
    ("WOMEN/Tees_Tanks/id_00000001/02_3_back.jpg", "id_00000001", "gallery"),
    ("MEN/Denim/id_00000080/01_1_front.jpg", "id_00000080", "train"),
    ("MEN/Denim/id_00000084/01_1_front.jpg", "id_00000084", "gallery"),
    ("MEN/Denim/id_00000084/01_7_additional.jpg", "id_00000084", "query"),
    ("MEN/Denim/id_00000084/02_7_additional.jpg", "id_00000084", "query"),
]  # fmt: skip
PARTITION = "Eval/list_eval_partition.txt"

PRODUCTS = {
    "train": [
        (1, 1, 1, "bicycle_final/111085122871_0.JPG"),
        (2, 1, 1, "bicycle_final/111085122871_1.JPG"),
        (3, 2, 1, "bicycle_final/111265328556_0.JPG"),
        (4, 3, 4, "coffee_maker_final/2_0.JPG"),
        (5, 4, 4, "coffee_maker_final/3_0.JPG"),
        (6, 5, 4, "coffee_maker_final/4_0.JPG"),
    ],
    "test": [
        (7, 6, 1, "bicycle_final/5_0.JPG"),
        (8, 7, 12, "toaster_final/6_0.JPG"),
        (9, 7, 12, "toaster_final/6_1.JPG"),
    ],
}

VEHICLES = {
    "train_list": [(1, 1008), (2, 1008), (3, 7), (4, 30), (5, 31), (6, 32)],
    "test_list_800": [(12345, 40), (11, 40), (12, 41)],
    "test_list_1600": [(12345, 40), (11, 40), (12, 41), (13, 42)],
    "test_list_2400": [(12, 41), (13, 42), (14, 43), (15, 43)],
}


def counts_of(train: tuple[int, int], test: tuple[int, int]) -> dict[str, int]:
    """The counts of an archive, from numbers of classes and of images."""
    names = ("train classes", "train images", "test classes", "test images")
    return dict(zip(names, (*train, *test), strict=True))


CUB_COUNTS = counts_of((4, 14), (2, 13))
CAR_COUNTS = counts_of((65, 130), (65, 130))
SOP_COUNTS = counts_of((5, 6), (2, 3))
INSHOP_COUNTS = {
    "train classes": 2,
    "train images": 3,
    "test classes": 2,
    "query images": 3,
    "gallery images": 2,
}
VEHICLE_COUNTS = {
    "train classes": 5,
    "train images": 6,
    "small classes": 2,
    "medium classes": 3,
    "large classes": 3,
}


@pytest.fixture
def birds(tmp_path: Path) -> Path:
    folder = tmp_path / "CUB_200_2011"
    for name in BIRDS:
        write_image(folder / "images" / name)
    rows = list(enumerate(BIRDS, 1))
    lists = {
        "images.txt": (f"{i} {name}" for i, name in rows),
        # In another order than the images.
        "image_class_labels.txt": (
            f"{i} {BIRD_LABELS[i - 1]}" for i, _ in reversed(rows)
        ),
        "bounding_boxes.txt": (
            f"{i} 2.0 1.0 {i % 5 + 1}.0 4.0" for i, _ in rows
        ),
        "classes.txt": (f"{c} {c:03d}.Bird_{c}" for c in range(1, 7)),
        "train_test_split.txt": (f"{i} 1" for i, _ in rows),
    }
    for file, lines in lists.items():
        write_lines(folder / file, lines)
    write_stray(folder, "images.txt", "images")
    write_stray(folder / "images" / "001.Bird_1", "Bird_1_0000.jpg")
    return folder


def annotations(names: list[str], rows: np.ndarray, last: str) -> Any:
    """A MATLAB structure array of the archive's fields and types."""
    merged = last == "relative_im_path"
    numbers = ["bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class"]
    fields = [last, *numbers, "test"] if merged else [*numbers, last]
    array = np.zeros((1, len(rows)), [(name, object) for name in fields])
    for i, row in enumerate(rows):
        values = [*CAR_BOXES[row].astype(np.uint16), np.uint8(CAR_LABELS[row])]
        for name, value in zip(numbers, values, strict=True):
            array[name][0, i] = np.array([[value]])
        array[last][0, i] = names[i]
        if merged:
            array["test"][0, i] = np.array([[np.uint8(i % 2)]])
    return array


def class_names() -> np.ndarray:
    names = np.zeros((1, CARS), object)
    names[0] = [f"Car {i}" for i in range(1, CARS + 1)]
    return names


@pytest.fixture
def merged(tmp_path: Path) -> Path:
    folder = tmp_path / "merged"
    rows = np.arange(len(CAR_LABELS))
    names = [f"car_ims/{i + 1:06d}.jpg" for i in rows]
    for name in names:
        write_image(folder / name)
    content = {
        "annotations": annotations(names, rows, "relative_im_path"),
        "class_names": class_names(),
    }
    savemat(folder / "cars_annos.mat", content)
    return folder


@pytest.fixture
def devkit(tmp_path: Path) -> Path:
    folder = tmp_path / "devkit"
    (folder / "devkit").mkdir(parents=True)
    for part, file in enumerate(("cars_train_annos.mat", LABELED)):
        rows = np.arange(part, len(CAR_LABELS), 2)
        names = [f"{i + 1:05d}.jpg" for i in range(len(rows))]
        for name in names:
            write_image(folder / ("cars_train", "cars_test")[part] / name)
        content = {"annotations": annotations(names, rows, "fname")}
        savemat(folder / "devkit" / file, content)
    names_file = folder / "devkit" / "cars_meta.mat"
    savemat(names_file, {"class_names": class_names()})
    return folder


def write_partition(folder: Path, count: int = len(CLOTHES)) -> None:
    lines = [str(count), "image_name item_id evaluation_status"]
    lines += [
        f"img/{name:<70}{item} {status:<8}" for name, item, status in CLOTHES
    ]
    write_lines(folder / PARTITION, lines)


@pytest.fixture
def clothes(tmp_path: Path) -> Path:
    for name, _, _ in CLOTHES:
        write_image(tmp_path / "img" / name)
    write_partition(tmp_path)
    return tmp_path


@pytest.fixture
def products(tmp_path: Path) -> Path:
    folder = tmp_path / "Stanford_Online_Products"
    for name, rows in PRODUCTS.items():
        header = "image_id class_id super_class_id path"
        lines = [header, *(" ".join(map(str, row)) for row in rows)]
        write_lines(folder / f"Ebay_{name}.txt", lines, "\r\n")
        for *_, path in rows:
            write_image(folder / path)
    return folder


@pytest.fixture
def vehicles(tmp_path: Path) -> Path:
    folder = tmp_path / "VehicleID_V1.0"
    for name, rows in VEHICLES.items():
        write_lines(
            folder / "train_test_split" / f"{name}.txt",
            (f"{image:07d} {vehicle}" for image, vehicle in rows),
        )
        for image, _ in rows:
            write_image(folder / "image" / f"{image:07d}.jpg")
    return folder


def test_cub200_trains_on_the_first_classes(birds: Path) -> None:
    splits = cub200(birds, counts=CUB_COUNTS)
    assert splits.name == "cub200"
    assert splits.trainval.classes.tolist() == [1, 2, 3, 4]
    assert splits.test.classes.tolist() == [5, 6]
    assert splits.validation.num_classes == 2
    assert splits.query_rows is None
    assert splits.test.ids == tuple(BIRDS[14:])
    assert splits.test.labels.tolist() == BIRD_LABELS[14:]
    assert splits.test.names[5] == "005.Bird_5"
    assert splits.test.paths[0] == str(birds / "images" / BIRDS[14])
    np.testing.assert_array_equal(splits.test.read(3), PIXELS)


def test_cub200_is_cropped_to_its_boxes(birds: Path) -> None:
    splits = cub200(birds.parent, cropped=True, counts=CUB_COUNTS)
    for row in (0, 4, 12):
        width = (14 + row + 1) % 5 + 1
        np.testing.assert_array_equal(
            splits.test.read(row), PIXELS[1:5, 2 : 2 + width]
        )
    # Fractions of pixels are rounded outwards.
    numbers = range(1, len(BIRDS) + 1)
    lines = (f"{i} 2.5 1.5 2.2 3.0" for i in numbers)
    write_lines(birds / "bounding_boxes.txt", lines)
    splits = cub200(birds, cropped=True, counts=CUB_COUNTS)
    assert splits.test.boxes[0].tolist() == [2, 1, 5, 5]


def test_counts_are_checked_against_cub200(birds: Path) -> None:
    with pytest.raises(
        ValueError, match=r"3 test classes \(of 2\), 18 test images \(of 13\)"
    ):
        cub200(
            birds, counts=CUB_COUNTS | {"train classes": 3, "train images": 9}
        )
    assert cub200(birds, counts=None).test.classes.tolist() == [4, 5, 6]


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("images.txt", "28 a b.jpg", "Line 28 .* must have 2 columns"),
        ("image_class_labels.txt", "28 6", r"28 lines, and ids .*\['28'\]"),
        ("image_class_labels.txt", "27 6", "must have one line for each"),
        ("classes.txt", "seven 007.Bird", "Every class in .*'seven'"),
        ("images.txt", None, "0 images"),
    ],
)
def test_damaged_list_raises(birds, file, line, message) -> None:
    text = (birds / file).read_text()
    (birds / file).write_text("\n" if line is None else f"{text}{line}\n")
    with pytest.raises(ValueError, match=message):
        cub200(birds, counts=CUB_COUNTS)


def test_cars196_reads_the_merged_archive(merged: Path) -> None:
    splits = cars196(merged, counts=CAR_COUNTS)
    assert splits.trainval.classes.tolist() == list(range(1, 66))
    assert splits.test.classes.tolist() == list(range(66, 131))
    assert splits.test.labels.tolist() == CAR_LABELS[130:].tolist()
    assert splits.test.ids[0] == "car_ims/000131.jpg"
    assert splits.test.names[130] == "Car 130"
    assert splits.validation.num_classes == 13
    np.testing.assert_array_equal(splits.test.read(1), PIXELS)
    # Boxes count from one and include their ends.
    splits = cars196(merged, cropped=True, counts=CAR_COUNTS)
    np.testing.assert_array_equal(splits.test.read(0), PIXELS)
    np.testing.assert_array_equal(splits.test.read(1), PIXELS[1:8, 2:5])


@pytest.mark.parametrize("moved", [False, True])
def test_cars196_merges_the_devkit(devkit: Path, moved: bool) -> None:
    if moved:
        (devkit / "devkit" / LABELED).rename(devkit / LABELED)
    splits = cars196(devkit, cropped=True, counts=CAR_COUNTS)
    assert splits.trainval.classes.tolist() == list(range(1, 66))
    assert splits.test.labels.tolist() == [*range(66, 131)] * 2
    assert splits.test.names[66] == "Car 66"
    assert splits.test.ids[0] == "cars_train/00066.jpg"
    assert splits.test.ids[65] == "cars_test/00066.jpg"
    np.testing.assert_array_equal(splits.test.read(65), PIXELS[1:8, 2:5])
    (devkit / "devkit" / "cars_meta.mat").unlink()
    assert not cars196(devkit, counts=CAR_COUNTS).test.names


def test_cars196_needs_annotations_with_labels(devkit: Path) -> None:
    labeled = devkit / "devkit" / LABELED
    fields = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "fname")
    array = np.zeros((1, 1), [(name, object) for name in fields])
    savemat(labeled, {"annotations": array})
    with pytest.raises(ValueError, match="must have annotations with classes"):
        cars196(devkit, counts=CAR_COUNTS)
    labeled.rename(devkit / "devkit" / "cars_test_annos.mat")
    with pytest.raises(FileNotFoundError, match="without .*withlabels"):
        cars196(devkit, counts=CAR_COUNTS)


@pytest.mark.parametrize("images", ["img", "Img/img"])
def test_inshop_has_queries_and_a_gallery(clothes: Path, images: str) -> None:
    (clothes / images).parent.mkdir(exist_ok=True)
    (clothes / "img").rename(clothes / images)
    splits = inshop(clothes, counts=INSHOP_COUNTS)
    assert splits.trainval.classes.tolist() == [2, 80]
    assert splits.test.labels.tolist() == [1, 1, 84, 84, 84]
    assert splits.query_rows.tolist() == [0, 3, 4]
    assert splits.gallery_rows.tolist() == [1, 2]
    assert splits.test.ids[4] == f"img/{CLOTHES[7][0]}"
    assert splits.test.names[84] == "id_00000084"
    assert splits.test.read(2).shape == (9, 12, 3)


def test_inshop_needs_a_whole_partition(clothes: Path) -> None:
    write_partition(clothes, count=9)
    with pytest.raises(ValueError, match="8 images, and a first line of '9'"):
        inshop(clothes, counts=INSHOP_COUNTS)
    (clothes / PARTITION).write_text("1\nheader\nimg/a.jpg id_1 val\n")
    with pytest.raises(ValueError, match=r"must be one of .*\['val'\]"):
        inshop(clothes, counts=INSHOP_COUNTS)


@pytest.mark.parametrize("above", [False, True])
def test_sop_is_split_by_its_archive(products: Path, above: bool) -> None:
    splits = sop(products.parent if above else products, counts=SOP_COUNTS)
    assert splits.name == "sop"
    assert splits.trainval.classes.tolist() == [1, 2, 3, 4, 5]
    assert splits.validation.num_classes == 2
    assert splits.test.labels.tolist() == [6, 7, 7]
    assert splits.test.ids == tuple(row[3] for row in PRODUCTS["test"])
    assert splits.test.names == {6: "bicycle 6", 7: "toaster 7"}
    assert splits.trainval.names[3] == "coffee_maker 3"
    assert splits.test.read(0).shape == (9, 12, 3)
    assert splits.test.groups["super_class"].tolist() == [1, 12, 12]
    assert sorted(splits.trainval.groups["super_class"]) == [1, 1, 1, 4, 4, 4]


def test_vehicleid_has_three_test_sets(vehicles: Path) -> None:
    splits = vehicleid(vehicles, counts=VEHICLE_COUNTS)
    assert splits.trainval.classes.tolist() == [7, 30, 31, 32, 1008]
    assert splits.validation.num_classes == 2
    assert splits.test is splits.tests["small"]
    assert splits.test.labels.tolist() == [40, 40, 41]
    assert splits.test.ids == ("0012345", "0000011", "0000012")
    assert splits.test.read(0).shape == (9, 12, 3)
    assert list(splits.tests) == ["small", "medium", "large"]
    large = vehicleid(vehicles.parent, test="large", counts=VEHICLE_COUNTS)
    assert large.test.labels.tolist() == [41, 42, 43, 43]
    with pytest.raises(
        ValueError, match="must be one of .*'small'.*test='all'"
    ):
        vehicleid(vehicles, test="all", counts=VEHICLE_COUNTS)


ARCHIVES = {
    "birds": (cub200, CUB_COUNTS, r"27 train images \(of 5,864\)"),
    "merged": (cars196, CAR_COUNTS, r"196 train images \(of 8,054\)"),
    "clothes": (inshop, INSHOP_COUNTS, r"3 query images \(of 14,218\)"),
    "products": (sop, SOP_COUNTS, r"5 train classes \(of 11,318\)"),
    "vehicles": (vehicleid, VEHICLE_COUNTS, r"5 train classes \(of 13,164\)"),
}
MISSING = [
    ("birds", f"images/{BIRDS[5]}", f"1 of the 27.*{BIRDS[5]}"),
    ("birds", "classes.txt", r"without classes\.txt"),
    ("merged", "car_ims/000007.jpg", r"1 of the 260.*000007\.jpg"),
    ("clothes", PARTITION, "without Eval/list_eval"),
    ("products", PRODUCTS["test"][0][3], r"1 of the 3 .*Ebay_test"),
    ("products", "Ebay_test.txt", r"without Ebay_test\.txt"),
    ("vehicles", "image/0000013.jpg", r"0000013\.jpg"),
]


@pytest.mark.parametrize("archive", ARCHIVES)
def test_incomplete_archive_raises(archive, request) -> None:
    folder = request.getfixturevalue(archive)
    loader, counts, message = ARCHIVES[archive]
    load = partial(loader, folder, counts=counts)
    load()
    with pytest.raises(ValueError, match=message):
        loader(folder)
    for owner, file, message in MISSING:
        if owner == archive:
            (folder / file).unlink()
            with pytest.raises(FileNotFoundError, match=message):
                load()


def test_archive_must_be_a_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="which does not exist"):
        cub200(tmp_path / "nowhere")
    archive = tmp_path / "CUB_200_2011.tgz"
    archive.write_bytes(b"")
    with pytest.raises(FileNotFoundError, match="Unpack the archive, and"):
        cub200(archive)


def test_damaged_matlab_file_raises(merged: Path) -> None:
    (merged / "cars_annos.mat").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"cars_annos\.mat must be a MATLAB"):
        cars196(merged, counts=CAR_COUNTS)
