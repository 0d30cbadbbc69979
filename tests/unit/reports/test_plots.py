import numpy as np
import pytest
from matplotlib.image import imread

from mercer.reports.plots import plot_curves, plot_fits

each_ending = pytest.mark.parametrize("ending", ["png", "svg"])


@each_ending
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


@each_ending
def test_the_same_panels_make_the_same_file(tmp_path, ending):
    x = np.array([1.0, 2.0, 4.0])
    panels = {"left": {"a": x, "b": 1 / x}, "right": {"b": x**2}, "below": {"c": x}}
    for name in ("first", "second"):
        plot_curves(tmp_path / f"{name}.{ending}", panels, x=x, xlabel="x", ylabel="y", highest=10.0, shared=True)
    assert (tmp_path / f"first.{ending}").stat().st_size > 5000
    if ending == "png":
        assert (tmp_path / "first.png").read_bytes() == (tmp_path / "second.png").read_bytes()
