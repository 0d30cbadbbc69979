import numpy as np
import pytest
from matplotlib.image import imread

from papers.maps import plot_maps


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_maps_are_drawn_side_by_side_with_one_scale(tmp_path, ending):
    x, y = np.array([1.0, 10.0, 100.0]), np.array([0.1, 1.0])
    panels = {"left": np.arange(6.0).reshape(2, 3), "right": np.arange(6.0).reshape(2, 3) + 10}
    path = tmp_path / f"maps.{ending}"
    plot_maps(path, panels, x=x, y=y, xlabel="across", ylabel="up", label="value")
    if ending == "svg":
        assert "<svg" in path.read_text(encoding="utf-8")
    else:
        image = imread(path)
        assert image.shape[1] > 2 * image.shape[0]
        # The lowest colour is in the left panel only, the highest in the right one only.
        dark, bright = ([0.267, 0.005, 0.329], [0.993, 0.906, 0.144])
        half = image.shape[1] // 2
        left, right = (
            [np.sum(np.all(np.abs(part[..., :3] - colour) < 0.01, axis=2)) for colour in (dark, bright)]
            for part in (image[:, : half - 50], image[:, half - 50 :])
        )
        assert left[0] > 1000 > left[1] == 0
        assert right[1] > 1000 > right[0]  # where only the bar of colours has the lowest
