# Lookups straight from keys. Part of compiled.pyx; numpy_twin.find_keys says what it means.

# Keys of a list that are hashed together, with the GIL, before they are asked for without it: their
# fingerprints (64 KiB) stay in the second cache. 1024 and 4096 could not be told apart, with one
# thread or two (16 to 20 ns per key); the larger one hands the GIL over less often.
cdef enum:
    _LISTED = 4096


def find_keys(vectors, geometries, keys, seed, found):
    """Asks for keys given as a list or an int64 array; writes answers to `found`, returns how many.

    Fewer than all: the next keys of the list are left to the caller.
    """
    cdef _Vectors held = _held(vectors, geometries)
    cdef Py_buffer answers, view
    cdef bloom_question asked
    cdef int outcome
    cdef unsigned parts = _parts_of(len(keys))
    contract.check_found(found, None if type(keys) is list else len(keys))
    PyObject_GetBuffer(found, &answers, PyBUF_WRITABLE)
    asked.vectors, asked.count, asked.found = held.vectors, held.count, <uint8_t *>answers.buf
    try:
        if type(keys) is list:
            return _find_list(asked, keys, seed, answers.len)
        asked.seed = murmur_seed(_INT_TAG, seed)
        _take(keys, "array", "int64", 1, &view)
        asked.prints, asked.keys, asked.n = NULL, <const uint64_t *>view.buf, view.shape[0]
        with nogil:
            outcome = bloom_find(&asked, parts)
        PyBuffer_Release(&view)
    finally:
        PyBuffer_Release(&answers)
    if outcome:
        raise MemoryError
    return len(keys)


cdef Py_ssize_t _find_list(
    bloom_question asked, list keys, object seed, Py_ssize_t n
) except -1:
    """A list may get shorter while the GIL is away: every chunk looks at its length again."""
    cdef bloom_seeds seeds = _seeds(seed)
    cdef Py_ssize_t done = 0, count
    cdef int outcome = 0
    cdef uint64_t *prints = <uint64_t *>PyMem_Calloc(2 * min(n, <Py_ssize_t>_LISTED) + 1, 8)
    if prints is NULL:
        raise MemoryError
    asked.prints = prints
    try:
        while done < n and not outcome:
            count = asked.n = min(n - done, <Py_ssize_t>_LISTED)
            if not bloom_prints_of_list(<PyObject *>keys, done, count, &seeds, prints, 1):
                return done
            with nogil:
                outcome = bloom_find(&asked, 1)
            asked.found += count
            done += count
    finally:
        PyMem_Free(prints)
    if outcome:
        raise MemoryError
    return done


def are_all(list values, type kind):
    """Whether every value of the list is exactly of this type."""
    cdef Py_ssize_t place
    for place in range(len(values)):
        if type(values[place]) is not kind:
            return False
    return True


def are_integers(list values, object least, object most):
    """Whether every value of the list is exactly an int between these two, which count."""
    cdef int overflow = 0
    cdef int64_t low, high = 0
    low = PyLong_AsLongLongAndOverflow(least, &overflow)
    if not overflow:
        high = PyLong_AsLongLongAndOverflow(most, &overflow)
    if not overflow:
        return bool(bloom_are_between(<PyObject *>values, low, high))
    return all([type(value) is int and least <= value <= most for value in values])
