"""How long `import mercer` takes in a fresh process."""

import subprocess
import sys

from benchmarks.clock import best_of


def report(rounds: int) -> str:
    """Run and describe the results."""

    def run(code: str) -> float:
        command = [sys.executable, "-c", code]
        return best_of(lambda: subprocess.run(command, check=True), rounds)

    empty, package, used = run("pass"), run("import mercer"), run("import mercer; mercer.NystromRegressor")
    peer = run("import sklearn.base")
    return (
        f"python -c 'import mercer': {package:.2f} s (python -c 'pass': {empty:.2f} s). Names load when they are used: "
        f"with NystromRegressor {used:.2f} s, of which scikit-learn's base alone {peer:.2f} s."
    )
