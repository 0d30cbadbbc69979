import numpy as np
import pytest

from mercer.reports.plots import plot_panels


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_same_panels_make_the_same_file(tmp_path, ending):
    x = np.array([1.0, 2.0, 4.0])
    panels = {"left": {"a": x, "b": 1 / x}, "right": {"b": x**2}, "below": {"c": x}}
    for name in ("first", "second"):
        plot_panels(tmp_path / f"{name}.{ending}", x, panels, xlabel="x", ylabel="y", highest=10.0)
    assert (tmp_path / f"first.{ending}").stat().st_size > 5000
    if ending == "png":
        assert (tmp_path / "first.png").read_bytes() == (tmp_path / "second.png").read_bytes()
