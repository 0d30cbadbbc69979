import numpy as np
import pytest
from matplotlib.image import imread

from mercer.reports.plots import plot_fits


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_fits_are_drawn_and_saved(tmp_path, ending):
    grid = np.linspace(0, 1, 20)
    path = tmp_path / f"fits.{ending}"
    fits = {"one": (np.sin(grid), 0.1 + grid), "two": (np.cos(grid), 0.1 + grid)}
    plot_fits(path, X=grid, y=grid, grid=grid, fits=fits, truth=grid, points={"two": grid[:3]})
    if ending == "svg":
        text = path.read_text(encoding="utf-8")
        assert "<svg" in text
        assert text.count("<path") > 10
    else:
        image = imread(path)
        assert image.shape[1] > image.shape[0]
        assert np.ptp(image) > 0.5
