"""The data that lessons read: what it is, and that it says where it comes from."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

DATA = Path(__file__).resolve().parents[2] / "data"


def test_the_digits_are_small_grey_images_with_a_label_each() -> None:
    digits = np.load(DATA / "digits.npz")
    images, labels = digits["images"], digits["labels"]
    assert images.shape == (1797, 8, 8) and images.dtype == np.uint8
    assert (images.min(), images.max()) == (0, 16)
    assert labels.shape == (1797,) and np.bincount(labels).tolist() == [
        178,
        182,
        177,
        183,
        181,
        182,
        181,
        179,
        174,
        180,
    ]


def test_a_model_that_knows_only_class_means_reads_most_digits() -> None:
    """Images and labels belong together: shuffled against each other they would give 10 %."""
    digits = np.load(DATA / "digits.npz")
    images, labels = digits["images"].reshape(-1, 64).astype(float), digits["labels"]
    means = np.stack([images[labels == digit].mean(axis=0) for digit in range(10)])
    nearest = ((images[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == labels).mean() > 0.85


def test_every_published_figure_names_its_hardware_unit_and_source() -> None:
    with (DATA / "published_figures.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) > 40
    for row in rows:
        assert all(row[name] for name in ("topic", "hardware", "workload", "setting", "unit", "source")), row
        assert float(row["value"]) > 0


def test_every_file_of_data_has_its_provenance() -> None:
    told = (DATA / "README.md").read_text(encoding="utf-8")
    files = [path.name for path in DATA.iterdir() if path.name != "README.md"]
    assert all(f"## {name}" in told for name in files), files
