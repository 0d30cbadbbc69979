"""What the experiments share, and the command that runs them all."""

import json
from importlib import import_module

import numpy as np
import pytest

import papers.__main__ as command_line
from papers import experiment


def test_one_command_runs_all_experiments_or_those_named(monkeypatch):
    ran = []
    for name in command_line.PAPERS:
        module = import_module(f"papers.{name}")
        monkeypatch.setattr(module, "main", lambda arguments, name=name: ran.append((name, *arguments)))
    command_line.main([])
    command_line.main(["compact_kernels", "--quick"])
    assert ran == [*((name,) for name in command_line.PAPERS), ("compact_kernels", "--quick")]


def test_an_unknown_experiment_is_refused_with_those_there_are(capsys):
    with pytest.raises(SystemExit):
        command_line.main(["compact_kernel"])
    assert "unknown: compact_kernel; choose from scalable_kernel_systems" in capsys.readouterr().err


def test_results_of_a_quick_run_do_not_replace_those_of_a_full_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments, folder in (([], "docs/papers/some"), (["--quick"], "build/some"), (["--output", "here"], "here")):
        options = experiment.parse(experiment.command("some", "An experiment."), arguments)
        assert str(options.output) == folder
        assert (tmp_path / folder).is_dir()


def test_results_are_on_disk_at_once_and_are_not_measured_again(tmp_path):
    path = tmp_path / "results.json"
    experiment.Kept(path, "ten").get("x", lambda: {"y": 1.0})
    assert json.loads(path.read_text()) == {"size": "ten", "numbers": {"x": {"y": 1.0}}}
    assert experiment.Kept(path, "ten").get("x", dict) == {"y": 1.0}
    with pytest.raises(ValueError, match="another size of the experiment"):
        experiment.Kept(path, "eleven")


def test_columns_are_scaled_by_the_known_rows_alone():
    X = np.array([[1.0, 0.0, 5.0], [3.0, 1.0, 5.0], [9.0, 1.0, 5.0]])
    train, test = experiment.shuffled_split(3, 2, 0)
    assert sorted([*train, *test]) == [0, 1, 2]
    known = np.array([0, 1])
    np.testing.assert_array_equal(experiment.scaled(X, known), [[-1, -1, 0], [1, 1, 0], [7, 1, 0]])
    np.testing.assert_array_equal(experiment.scaled(X, known, binary=False)[:, 1], X[:, 1])
    np.testing.assert_array_equal(experiment.scaled(X[:, 0], known), [-1, 1, 7])


def test_claims_are_listed_with_what_was_found():
    text = experiment.claims_table([experiment.Claim("a", "1", True), experiment.Claim("b", "2", False)])
    assert "holds" in text.splitlines()[-2]
    assert "does not hold" in text.splitlines()[-1]
