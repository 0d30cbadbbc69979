"""Values as JSON and arrays, and back: parameters may be anything that numbers, text and arrays can make."""

import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import sparse

from mercer.kernels import Gaussian
from mercer.persistence.decoding import decode
from mercer.persistence.encoding import encode
from tests.archives import assert_alike, loaded, saved, taken_apart

plain = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**200), st.floats(), st.text(), st.binary(max_size=9)
)  # fmt: skip
numbers = st.one_of(
    *(arrays.from_dtype(np.dtype(name)) for name in ("<f8", ">f4", "<i2", "|u1", "|b1", "<f2", "<U3", "|S3", "<M8[s]"))
)
tables = arrays.arrays(
    st.sampled_from(["<f8", ">f8", "<f4", "<i8", "|b1", "|u1", "<U2", "|S2", "<m8[ns]"]),
    arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
hashable = st.one_of(st.none(), st.booleans(), st.integers(), st.text(), st.tuples(st.integers(), st.text()))
values = st.recursive(
    st.one_of(plain, numbers, tables),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(hashable, inner, max_size=3),
    ),
    max_leaves=12,
)


def through_json(value):
    tree, arrays = encode(value, "value")
    text = json.dumps(tree, allow_nan=False)
    return decode(json.loads(text), [array.copy(order="K") for array in arrays])


@given(values)
def test_values_come_back_with_their_types(value):
    assert_alike(value, through_json(value))


@given(values)
def test_any_value_can_be_a_parameter(value):
    kernel = Gaussian(length_scale=value)
    assert_alike(kernel, loaded(saved(kernel)))


@pytest.mark.parametrize(
    "value",
    [
        -0.0,
        5e-324,
        1.7976931348623157e308,
        float("nan"),
        float("-inf"),
        2**63 - 1,
        2**63,
        -(2**63) - 1,
        (),
        [],
        {},
        "\udcff",
        np.str_(""),
        np.float32("nan"),
        np.dtype("<M8[25us]"),
        np.dtype(">U7"),
        slice(1, None, 2),
        np.empty((0, 3)),
        np.array(3.0),
        np.array("text"),
        np.array(["a", None, 1.5, b"b", ("c",)], dtype=object),
        np.array([[1, "b"]], dtype=object),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(24.0).reshape(2, 3, 4)[:, ::2, ::-1],
        np.broadcast_to(np.float64(2.0), 5),
        [np.arange(3), np.arange(0), np.arange(5)],
        [np.arange(3.0), np.arange(5)],
        [(1, 2.5)] * 20,
        [(1, 2.5)] * 19 + [(1, 2)],
        [(2**70, 1.0)] * 20,
        [(True, 1.0)] * 20,
        [()] * 20,
        sparse.csc_array(np.tri(4)),
        sparse.csr_array(np.tri(4)),
        sparse.csr_array((3, 0)),
    ],
    ids=lambda value: f"{type(value).__name__}-{str(value)[:20]!r}",
)
def test_particular_values(value):
    again = through_json(value)
    if isinstance(value, np.ndarray) and not value.flags.forc:
        np.testing.assert_array_equal(again, value)
        assert again.flags.c_contiguous
        return
    assert_alike(value, again)
    if isinstance(value, float):
        assert np.signbit(value) == np.signbit(again)


@pytest.mark.parametrize("name", ["MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"])
def test_generators_go_on(name):
    generator = np.random.Generator(getattr(np.random, name)(5))
    generator.integers(10, size=3, dtype=np.uint32)
    again = through_json(generator)
    np.testing.assert_array_equal(again.normal(size=1000), generator.normal(size=1000))


def test_random_states_go_on():
    state = np.random.RandomState(5)
    state.normal()  # another one is ready
    again = through_json(state)
    np.testing.assert_array_equal(again.normal(size=1001), state.normal(size=1001))


def test_the_same_array_is_the_same_again():
    array = np.arange(5.0)
    first, (second, third) = through_json([array, (array, array[:])])
    assert first is second is third
    different = through_json([np.zeros(0), np.zeros(0)])
    assert different[0] is not different[1]


def test_arrays_that_are_loaded_can_be_written_to():
    array = np.arange(5.0)
    array.flags.writeable = False
    kernel = loaded(saved(Gaussian(array)))
    assert kernel.length_scale.flags.writeable
    assert kernel.length_scale.flags.aligned


def test_arrays_are_numpys_own_files():
    kernel = Gaussian(np.asfortranarray(np.arange(6.0).reshape(2, 3)))
    _, members = taken_apart(saved(kernel))
    assert_alike(kernel.length_scale, np.load(io.BytesIO(members["array_0.npy"]), allow_pickle=False))
    file = io.BytesIO()
    np.lib.format.write_array(file, kernel.length_scale, version=(1, 0))
    assert members["array_0.npy"] == file.getvalue()
