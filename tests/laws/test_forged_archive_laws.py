"""No file makes ``load`` do anything but load or refuse: damaged ones, and forged ones whose checksums are right."""

import pickle
import tracemalloc
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mercer import (
    CommitteeRegressor,
    CompactRegressor,
    ExactRegressor,
    NystromClassifier,
    NystromFeatures,
    NystromPCA,
    NystromRegressor,
    OnlineRegressor,
    ReducedRankRegressor,
)
from mercer.exceptions import ArchiveError
from mercer.kernels import Gaussian, Linear, Matern, Wendland
from tests.archives import answers, at, digest_of, loaded, places, put_together, replaced, saved, taken_apart
from tests.strategies import examples


def draw(seed=0, n=25):
    X = np.random.default_rng(seed).normal(size=(n, 3))
    return X, X[:, 0] + np.sin(2 * X[:, 1])


class Trap:
    """What pickle would run."""

    sprung = False

    def __reduce__(self):
        return (setattr, (Trap, "sprung", True))


def small_models():
    X, y = draw()
    labels = np.where(y > 0, "yes", "no")
    yield NystromRegressor(n_basis=4, intercept=True, random_state=np.random.RandomState(0), noise=0.1).fit(X, y)
    yield NystromClassifier(n_basis=4, noise=0.1, intercept=False).fit(pd.DataFrame(X, columns=["a", "b", "c"]), labels)
    yield NystromFeatures(n_basis=4).fit(X)
    yield NystromPCA(n_components=2, n_basis=4).fit(X)
    yield OnlineRegressor(max_basis=5, record=True, intercept=True).partial_fit(X, y).partial_fit(X, -y)
    yield CompactRegressor(kernel=Wendland(4.0)).fit(X, y)
    yield CompactRegressor(kernel=Wendland(4.0), solver="cg", preconditioner="incomplete").fit(X, y)
    yield CommitteeRegressor(n_basis=4, block_size=7).fit(X, y)
    yield ReducedRankRegressor(n_basis=4).fit(X, y)
    yield ExactRegressor(noise=0.1, intercept=False).fit(X, y)
    yield Gaussian(np.array([1.0, 2.0])) + Linear() * Matern()


fuzz = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
archives = st.deferred(lambda: st.sampled_from([saved(model) for model in small_models()]))

STRANGE = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 3), st.sampled_from([2**31, 2**63, 2**64, -(2**70), 10**400]),
    st.floats(allow_nan=False), st.text(max_size=3), st.just([]), st.just({}), st.just([[[]]]),
    st.sampled_from(["../etc/passwd", "/dev/zero", "os.system", "C:\\x", "__class__", "Function", "|O", "<f8", "nan"]),
    st.integers(0, 40).map(lambda i: {"array": i}), st.just({"object": ["Gaussian", {}]}),
    st.just({"object": ["Function", {"function": {"function": "unchanged"}, "amplitude": 1.0}]}),
    st.just({"function": "unchanged"}), st.just({"dtype": "|O"}),
    st.just({"scalar": ["<f8", "AAAAAAAA8D8="]}),
    st.just({"dict": [[[], 1]]}), st.just({"generator": ["PCG64", None]}), st.just({"random_state": {"dict": []}}),
    st.just({"objects": [[10**9, 10**9], []]}), st.just({"tuple": [{"int": "0x" + "f" * 5000}]}),
    st.just({"sparse": ["csc", [3, 3], 0, 0, 0]}), st.just({"ragged": [0, 1]}), st.just({"table": [0, 0]}),
)  # fmt: skip


def assert_loads_or_refuses(data, original=None):
    """Loads the same model (any, if the forger had the digest) or raises our error; runs nothing, hoards nothing."""
    tracemalloc.start()
    try:
        model = loaded(data)
    except ArchiveError:
        return
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 40 * len(data) + 2e7
        assert not Trap.sprung
    if original is not None:
        assert saved(model) == original


@fuzz
@given(archives, st.data())
def test_flipped_bytes(data, choices):
    damaged = bytearray(data)
    for _ in range(choices.draw(st.integers(1, 3))):
        damaged[choices.draw(st.integers(0, len(data) - 1))] ^= choices.draw(st.integers(1, 255))
    assert_loads_or_refuses(bytes(damaged), data)


@fuzz
@given(archives, st.data())
def test_truncated_lengthened_and_cut_out(data, choices):
    start, stop = sorted(choices.draw(st.tuples(*[st.integers(0, len(data))] * 2)))
    middle = choices.draw(st.sampled_from([b"", b"\0" * (stop - start), data[start:stop] * 2, pickle.dumps(Trap())]))
    assert_loads_or_refuses(data[:start] + middle + data[stop:], data)


@fuzz
@given(archives, st.data())
def test_bytes_that_are_no_archive(data, choices):
    assert_loads_or_refuses(choices.draw(st.binary(max_size=200)), data)
    assert_loads_or_refuses(b"PK\3\4" + choices.draw(st.binary(max_size=200)) + data[-60:], data)


@settings(fuzz, max_examples=examples(400))
@given(archives, st.data())
def test_headers_that_say_something_else(data, choices):
    """Whoever can compute a digest can make any header."""
    header, members = taken_apart(data)
    for _ in range(choices.draw(st.integers(1, 2))):
        path = choices.draw(st.sampled_from(list(places(header))))
        value = choices.draw(STRANGE)
        if choices.draw(st.booleans()) and path:  # a value from elsewhere
            value = at(header, choices.draw(st.sampled_from(list(places(header)))))
        header = replaced(header, path, value)
        if not isinstance(header, dict):
            return
    assert_loads_or_refuses(put_together(header, members))


@fuzz
@given(archives, st.data())
def test_headers_that_were_changed_by_accident(data, choices):
    header, members = taken_apart(data)
    path = choices.draw(st.sampled_from([path for path in places(header) if path]))
    changed = replaced(header, path, choices.draw(STRANGE))
    assert_loads_or_refuses(put_together(changed, members, digest=digest_of(data)), data)


@fuzz
@given(archives, st.data())
def test_members_in_another_order_twice_missing_or_exchanged(data, choices):
    header, members = taken_apart(data)
    names = choices.draw(st.permutations(list(members)))
    shuffled = {name: members[name] for name in names}
    assert_loads_or_refuses(put_together(header, shuffled), data)
    if len(names) > 1:
        exchanged = shuffled | {names[0]: members[names[1]]}
        assert_loads_or_refuses(put_together(header, exchanged))
        del shuffled[names[0]]
        with pytest.raises(ArchiveError, match="missing"):
            loaded(put_together(header, shuffled))


@settings(fuzz, max_examples=examples(200))
@given(archives, st.data())
def test_arrays_of_other_numbers(data, choices):
    """With bytes of the right length, whatever they are: what compiled loops rely on is checked, so use is safe."""
    header, members = taken_apart(data)
    if not members:
        return
    name = choices.draw(st.sampled_from(list(members)))
    content = bytearray(members[name])
    for _ in range(choices.draw(st.integers(1, 4))):
        if len(content) > 128:
            start = choices.draw(st.integers(128, len(content) - 1))
            noise = choices.draw(st.binary(min_size=1, max_size=8))
            content[start : start + len(noise)] = noise[: len(content) - start]
    forged = put_together(header, members | {name: bytes(content)})
    assert_loads_or_refuses(forged)
    try:
        model = loaded(forged)
    except ArchiveError:
        return
    # What makes no sense of the numbers is said when they are used; and it is our own checks that say so.
    with np.errstate(all="ignore"), suppress(ValueError, ArithmeticError, Warning):
        answers(model, draw(1, 10)[0])
