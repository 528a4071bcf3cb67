# Fingerprints of many keys. Part of compiled.pyx; numpy_twin.py says what they mean.

cdef extern from "hash_buffer.h" nogil:
    ctypedef struct bloom_buffer:
        const uint64_t *keys
        const uint8_t *text
        int64_t length
        const int64_t *offsets
        uint32_t seed
        size_t n
        uint64_t *out
    size_t bloom_prints_of_buffer(const bloom_buffer *, unsigned)


cdef object _prints_of(bloom_buffer *given, size_t *done):
    """New fingerprints for a buffer; `done` is how many are right."""
    cdef unsigned parts = _parts_of(given.n)
    cdef Py_buffer view
    prints = np.empty((given.n, 2), _uint64)
    PyObject_GetBuffer(prints, &view, PyBUF_WRITABLE)
    given.out = <uint64_t *>view.buf
    with nogil:
        done[0] = bloom_prints_of_buffer(given, parts)
    PyBuffer_Release(&view)
    return prints


def fingerprints_of_int64(array, seed):
    """The fingerprints of integer keys, given as a contiguous int64 array."""
    cdef bloom_buffer given
    cdef Py_buffer view
    cdef size_t done
    given.seed = murmur_seed(_INT_TAG, seed)
    _take(array, "array", "int64", 1, &view)
    given.keys, given.n = <const uint64_t *>view.buf, view.shape[0]
    try:
        return _prints_of(&given, &done)
    finally:
        PyBuffer_Release(&view)


def fingerprints_of_slices(memory, offsets, tag, seed):
    """The fingerprints of memory[offsets[i]:offsets[i + 1]], keys of this tag in one buffer.

    `offsets` are int64, one more than there are keys. They come from outside, so each is checked.
    """
    cdef const uint8_t[::1] text = memory
    cdef bloom_buffer given
    cdef Py_buffer view
    cdef size_t done
    given.seed = murmur_seed(tag, seed)
    given.keys = NULL
    given.length = text.shape[0]
    given.text = &text[0] if given.length else NULL
    _take(offsets, "offsets", "int64", 1, &view)
    given.offsets, given.n = <const int64_t *>view.buf, max(0, view.shape[0] - 1)
    try:
        prints = _prints_of(&given, &done)
    finally:
        PyBuffer_Release(&view)
    if done < given.n:
        raise ValueError(f"offsets {done} and {done + 1} are not inside {given.length} bytes")
    return prints


def fingerprints_of_list(list keys not None, seed, start=0, stop=None):
    """The fingerprints of keys[start:stop] if all are exactly str, bytes or int64, else None.

    None also for a str with a lone surrogate. The keys are hashed where they lie, so this keeps
    the GIL.
    """
    cdef bloom_seeds seeds = _seeds(seed)
    cdef Py_ssize_t first, end
    first, end, _ = slice(start, stop).indices(len(keys))
    prints = np.empty((max(0, end - first), 2), dtype=np.uint64)
    cdef uint64_t[:, ::1] out = prints
    if not len(prints):
        return prints
    if not bloom_prints_of_list(
        <PyObject *>keys, first, end - first, &seeds, &out[0, 0], _parts_of(end - first)
    ):
        return None
    return prints
