"""A scikit-learn SVC, compressed to ever fewer vectors, and the smallest that will do as a C header.

Run it: ``python examples/small_model.py [picture]``.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from mercer.compression import compress
from mercer.persistence import to_c

SIZES = (5, 10, 20, 50, 100)
MAIN = """
#include <stdio.h>
#include "svc.h"

int main(void) {
    float x[svc_n_features];
    for (;;) {
        for (int i = 0; i < svc_n_features; ++i) {
            if (scanf("%f", &x[i]) != 1) return 0;
        }
        printf("%d\\n", svc_label(svc_predict(x)));
    }
}
"""


def measurements():
    """Two classes in ten features, each feature in a unit of its own; a tenth of the labels is wrong."""
    X, y = make_classification(
        6000, 10, n_informative=6, n_redundant=0, n_clusters_per_class=4, flip_y=0.1, random_state=0
    )
    return train_test_split(50 + X * np.logspace(-1, 2, 10), y, test_size=0.5, random_state=0)


def microseconds(model, rows):
    """Time per row, the best of three."""
    times = []
    for _ in range(3):
        start = perf_counter()
        model.predict(rows)
        times.append(perf_counter() - start)
    return 1e6 * min(times) / len(rows)


def compiled(source, rows):
    """The labels that a compiled header gives to the rows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "svc.h").write_text(source)
        (folder / "main.c").write_text(MAIN)
        subprocess.run(["gcc", "-std=c99", "-O3", folder / "main.c", "-o", folder / "svc", "-lm"], check=True)
        text = "\n".join(" ".join(f"{value:.9g}" for value in row) for row in rows)
        answer = subprocess.run([folder / "svc"], input=text, capture_output=True, text=True, check=True)
        return np.array(answer.stdout.split(), dtype=int)


def main():
    X_train, X_test, y_train, y_test = measurements()
    model = make_pipeline(StandardScaler(), SVC()).fit(X_train, y_train)
    decisions = model.predict(X_test)
    print("vectors  accuracy  decided alike  relative distance  µs per row")
    accuracy = np.mean(decisions == y_test)
    print(f"{len(model[-1].support_):7d}  {accuracy:8.3f}  {'':32}  {microseconds(model, X_test):10.2f}")
    curves = {}
    for size in SIZES:
        small = compress(model, size, random_state=0)
        alike, accuracy = np.mean(small.predict(X_test) == decisions), small.score(X_test, y_test)
        distance, time = small.relative_distance_, microseconds(small, X_test)
        print(f"{size:7d}  {accuracy:8.3f}  {alike:13.3f}  {distance:17.3f}  {time:10.2f}")
        curves[f"{size} vectors"] = (np.arange(len(small.distances_)) + 1, small.distances_)
    source = to_c(small, name="svc")
    print(f"as C: {len(source) / 1000:.0f} kB of source")
    if shutil.which("gcc"):
        agreement = np.mean(compiled(source, X_test) == small.predict(X_test))
        print(f"compiled, it decides as Python does on {100 * agreement:.2f} % of the rows")
    if len(sys.argv) > 1:
        from mercer.reports.plots import plot_curves

        plot_curves(sys.argv[1], {"squared distance": curves}, xlabel="vector, then step", ylabel="", scale="log")


if __name__ == "__main__":
    main()
