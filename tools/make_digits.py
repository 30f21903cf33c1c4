"""Make data/digits.npz from the handwritten digits that scikit-learn ships; see data/README.md.

    pip install scikit-learn
    python tools/make_digits.py

The file is committed, so that no lesson and no test needs scikit-learn or a download.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

TARGET = Path(__file__).resolve().parent.parent / "data" / "digits.npz"


def main() -> None:
    """Write `images`, uint8 [1797, 8, 8] from 0 (paper) to 16 (ink), and `labels`, uint8 [1797]."""
    digits = load_digits()
    images = digits.images.astype(np.uint8)
    assert (images == digits.images).all()  # whole numbers from 0 to 16, so that a byte holds them
    np.savez_compressed(TARGET, images=images, labels=digits.target.astype(np.uint8))
    print(f"{TARGET.name}: {len(images)} images, {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
