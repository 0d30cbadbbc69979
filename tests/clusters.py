"""Clusters for tests, and rows on them."""

import numpy as np

import mercer


def cluster(n_workers=2, *, processes=False):
    """A local cluster, by default of threads."""
    return mercer.local_cluster(n_workers, processes=processes)


def chunked(array, lengths):
    """A Dask array of chunks of rows of these lengths."""
    import dask.array as da

    return da.from_array(np.asarray(array), chunks=(tuple(lengths), *np.shape(array)[1:]))


def unknown(array):
    """The same with chunks whose lengths are not known."""
    array = array[:]
    array._chunks = (tuple(np.nan for _ in array.chunks[0]), *array.chunks[1:])
    return array
