# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: embedsignature=False, binding=True
"""The loops over bits in C: the same functions as numpy_twin.py, the same results.

In: numpy arrays and geometries; out: numpy arrays. This file checks the arguments, takes the
addresses of buffers and lets go of the GIL; the loops are in c/.

Invariants
  1. Same arguments, same results and same kinds of errors as numpy_twin.py (tests/kernels).
  2. A loop only starts on a vector whose length is that of its geometry, so that no address can
     lie outside; the numbers of the geometry are checked again here.
  3. Buffers are held while a loop runs, so a mapped file cannot be closed under it.

Not here: what the functions mean (numpy_twin.py says it), the arithmetic (vector.h).
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_SIMPLE, PyBUF_STRIDES, PyBuffer_IsContiguous, PyBuffer_Release,
    PyBUF_WRITABLE, PyObject_GetBuffer,
)
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.number cimport PyNumber_Index
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr

import numpy as np

from bloomstore.hashing import h3
from bloomstore.hashing.fingerprint import INT_TAG, murmur_seed
from bloomstore.kernels import contract, threads
from bloomstore.layout.contract import Geometry, LayoutCode, SchemeCode

cdef extern from "insert_threads.h" nogil:
    enum:
        BLOOM_SPREAD
        BLOOM_H3
        BLOOM_BLOCKED
        BLOOM_MAX_HASHES
        BLOOM_GROUP
        BLOOM_H3_ROWS
        BLOOM_MOST_PARTS
    ctypedef struct bloom_tables:
        const uint64_t *rows[8]
    ctypedef struct bloom_vector:
        uint8_t *bits
        uint64_t bytes
        uint64_t slice_bits
        uint64_t step_bits
        uint64_t lines
        const bloom_tables *tables
        unsigned kind
        unsigned hashes
        unsigned shift
    ctypedef struct bloom_change:
        int64_t bits_left
        int64_t keys_left
        int64_t taken
        int64_t bits
    void bloom_insert_shared(
        const bloom_vector *, const uint64_t *, size_t, uint8_t *, bloom_change *, unsigned, size_t)
    void bloom_apply(const bloom_vector *, const uint64_t *, size_t)
    unsigned bloom_shares_of(const bloom_vector *, unsigned)
    int64_t bloom_insert_in_parts(
        const bloom_vector *, const uint64_t *, size_t, uint8_t *, unsigned)
    int bloom_has(const bloom_vector *, uint64_t, uint64_t)
    int bloom_add(const bloom_vector *, uint64_t, uint64_t, int, uint8_t *, unsigned)
    void bloom_mark(const bloom_vector *, const uint64_t *, size_t, uint8_t *, size_t, unsigned)

cdef extern from "preview.h" nogil:
    int bloom_preview(const bloom_vector *, const uint64_t *, size_t, uint8_t *, bloom_change *)
    int bloom_missing(const bloom_vector *, uint64_t, uint64_t)

cdef extern from "count.h" nogil:
    uint64_t bloom_count(const uint8_t *, size_t)

cdef extern from "find.h" nogil:
    ctypedef struct bloom_question:
        const bloom_vector *vectors
        size_t count
        const uint64_t *prints
        const uint64_t *keys
        uint32_t seed
        size_t n
        uint8_t *found
    int bloom_find(const bloom_question *, unsigned)

cdef extern from "murmur.h" nogil:
    ctypedef struct bloom_print:
        uint64_t h1
        uint64_t h2
    bloom_print bloom_murmur(const void *, size_t, uint32_t)
    bloom_print bloom_murmur_int64(uint64_t, uint32_t)

cdef extern from "hash_python.h":
    ctypedef struct bloom_seeds:
        uint32_t of_str
        uint32_t of_int
        uint32_t of_bytes
    int bloom_are_between(PyObject *, int64_t, int64_t)
    int bloom_print_of(PyObject *, const bloom_seeds *, bloom_print *)
    int bloom_prints_of_list(
        PyObject *, Py_ssize_t, Py_ssize_t, const bloom_seeds *, uint64_t *, unsigned)

cdef extern from "single_key.h":
    ctypedef struct bloom_one:
        int (*ask)(const bloom_one *, PyObject *)
        bloom_seeds seeds
    void bloom_point_at(bloom_one *, const bloom_vector *, size_t)

cdef extern from "cpu.h":
    int bloom_width
    int bloom_widest()

BACKEND = "compiled"
bloom_width = bloom_widest()

cdef object _ndarray = np.ndarray, _bool = np.dtype(np.bool_), _uint64 = np.dtype(np.uint64)
cdef int64_t _FAR = contract.FAR
cdef dict _FORMS = {"uint8": (b"B",), "uint64": (b"L", b"Q"), "int64": (b"l", b"q")}
cdef size_t _MOST_PRINTS = contract.MAX_PRINTS_PER_CALL
cdef unsigned _PLAIN = LayoutCode.PLAIN, _SLICED = LayoutCode.SLICED
cdef unsigned _BLOCKED = LayoutCode.BLOCKED
cdef unsigned _SPREAD = SchemeCode.SPREAD, _H3 = SchemeCode.H3
cdef uint64_t _MOST_BITS = <uint64_t>1 << 48


def use_width(int bits):
    """Uses registers of at most so many bits from now on; returns how many it were. For tests."""
    global bloom_width
    before, bloom_width = bloom_width, min(bits, bloom_widest())
    return before


# Tags of keys.TagCode: part of the format, pinned by tests/golden/keys.json.
cdef int _STR_TAG = 1, _BYTES_TAG = 2, _INT_TAG = INT_TAG


cdef unsigned _parts_of(size_t keys) except 0:
    """Into how many parts a call with so many keys is divided, a thread for each."""
    return max(1, min(threads.threads_for(keys), <int>BLOOM_MOST_PARTS))


cdef bloom_seeds _seeds(object seed):
    cdef bloom_seeds made
    made.of_str = murmur_seed(_STR_TAG, seed)
    made.of_int = murmur_seed(_INT_TAG, seed)
    made.of_bytes = murmur_seed(_BYTES_TAG, seed)
    return made


# H3 tables live as long as the process: made on first use, 128 KiB for each eight hashes.
cdef bloom_tables _tables
cdef list _tables_alive = []


cdef int _need_tables(unsigned hashes) except -1:
    cdef const uint64_t[:, :, ::1] rows
    cdef unsigned group
    while len(_tables_alive) * BLOOM_GROUP < hashes:
        group = len(_tables_alive)
        rows = h3.table_rows(group)
        _tables.rows[group] = &rows[0, 0, 0]
        _tables_alive.append(rows)
    return 0


cdef int _take(object array, str name, str kind, int dimensions, Py_buffer *view) except -1:
    """Take the buffer of an array of this kind; the caller gives it back."""
    if not isinstance(array, _ndarray):
        raise ValueError(f"{name} must be a numpy array, got {type(array).__name__}")
    try:
        PyObject_GetBuffer(array, view, PyBUF_STRIDES | PyBUF_FORMAT)
    except (BufferError, TypeError, ValueError) as error:
        raise ValueError(f"{name} must be of type {kind}, got {array.dtype}") from error
    cdef bytes form = view.format
    try:
        if form not in _FORMS[kind] or view.itemsize != (1 if kind == "uint8" else 8):
            raise ValueError(f"{name} must be of type {kind}, got {array.dtype}")
        if not PyBuffer_IsContiguous(view, b"C"):
            raise ValueError(f"{name} must be C-contiguous")
        if dimensions == 1 and view.ndim != 1:
            raise ValueError(f"{name} must have one dimension, got {view.ndim}")
        if dimensions == 2 and (view.ndim != 2 or view.shape[1] != 2):
            raise ValueError(f"{name} must have the shape (n, 2), got {array.shape}")
    except BaseException:
        PyBuffer_Release(view)
        raise
    return 0


cdef class _Prints:
    """The buffer of fingerprints, given back when this goes away."""

    cdef Py_buffer view
    cdef const uint64_t *words
    cdef size_t n

    def __cinit__(self, object prints):
        _take(prints, "prints", "uint64", 2, &self.view)
        self.words = <const uint64_t *>self.view.buf
        self.n = self.view.shape[0]

    def __dealloc__(self):
        PyBuffer_Release(&self.view)  # does nothing when nothing was taken


cdef class _Vectors:
    """Checked vectors with their buffers, given back when this goes away."""

    cdef Py_buffer *views
    cdef bloom_vector *vectors
    cdef size_t count

    def __cinit__(self, size_t room):
        self.count = 0
        self.views = <Py_buffer *>PyMem_Calloc(room, sizeof(Py_buffer))
        self.vectors = <bloom_vector *>PyMem_Calloc(room, sizeof(bloom_vector))
        if self.views is NULL or self.vectors is NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef size_t i
        for i in range(self.count):
            PyBuffer_Release(self.views + i)
        PyMem_Free(self.views)
        PyMem_Free(self.vectors)

    cdef int add(self, object vector, object geometry, bint to_write) except -1:
        cdef Py_buffer *view = self.views + self.count
        _take(vector, "vector", "uint8", 1, view)
        self.count += 1
        if to_write and view.readonly:
            raise ValueError("vector must be writable, got a read-only array")
        cdef bloom_vector *v = self.vectors + self.count - 1
        cdef uint64_t needed = _describe(v, geometry)
        if <uint64_t>view.len != needed:
            raise ValueError(f"vector must have {needed} bytes ({geometry}), got {view.len}")
        v.bits = <uint8_t *>view.buf
        v.bytes = needed
        return 0


cdef uint64_t _describe(bloom_vector *v, object geometry) except 0:
    """Fill in everything but the bits; return how many bytes the vector must have."""
    if not isinstance(geometry, Geometry):
        raise ValueError(f"geometry must be a Geometry, got {type(geometry).__name__}")
    cdef unsigned layout, scheme
    cdef uint64_t bits, stride
    try:
        layout, scheme = geometry.layout, geometry.scheme
        bits, v.hashes = geometry.slice_bits, geometry.hashes
    except OverflowError as error:
        raise ValueError(f"no kernel for such large numbers: {geometry}") from error
    stride = (bits + 511) // 512 * 512
    v.slice_bits = bits
    v.step_bits = stride if layout == _SLICED else 0
    if layout == _BLOCKED and scheme == _SPREAD and bits % 512 == 0:
        v.kind = BLOOM_BLOCKED
        v.lines = bits // 512
    elif (layout == _PLAIN or layout == _SLICED) and scheme == _SPREAD:
        v.kind = BLOOM_SPREAD
    elif (layout == _PLAIN or layout == _SLICED) and scheme == _H3 and bits & (bits - 1) == 0:
        v.kind = BLOOM_H3
        v.shift = BLOOM_H3_ROWS - (geometry.slice_bits.bit_length() - 1)
        v.tables = &_tables
    else:
        v.kind = 0
    if not v.kind or not 1 <= v.hashes <= BLOOM_MAX_HASHES or not 1 <= bits <= _MOST_BITS:
        raise ValueError(
            f"no kernel for layout {layout}, scheme {scheme}, {bits} bits, {v.hashes} hashes"
        )
    if v.kind == BLOOM_H3:
        _need_tables(v.hashes)
    return (v.hashes if layout == _SLICED else 1) * stride // 8


cdef _Vectors _held(vectors, geometries):
    if len(vectors) != len(geometries):
        raise ValueError(f"got {len(vectors)} vectors, but {len(geometries)} geometries")
    cdef _Vectors held = _Vectors(len(vectors))
    for vector, geometry in zip(vectors, geometries):
        held.add(vector, geometry, False)
    return held


def find(vectors, geometries, prints):
    """Which keys are reported by any of the vectors, asked in the order given."""
    cdef _Vectors held = _held(vectors, geometries)
    cdef _Prints keys = _Prints(prints)
    found = np.zeros(keys.n, _bool)
    cdef Py_buffer answers
    cdef bloom_question asked
    cdef unsigned parts = _parts_of(keys.n)
    cdef int outcome
    PyObject_GetBuffer(found, &answers, PyBUF_SIMPLE)
    asked.vectors, asked.count = held.vectors, held.count
    asked.prints, asked.n, asked.found = keys.words, keys.n, <uint8_t *>answers.buf
    with nogil:
        outcome = bloom_find(&asked, parts)
    PyBuffer_Release(&answers)
    if outcome:
        raise MemoryError
    return found


cdef int64_t _limit(object number) except? -7:
    """The same limit, brought into the range that the loops count in."""
    cdef int beyond = 0
    cdef int64_t found = PyLong_AsLongLongAndOverflow(PyNumber_Index(number), &beyond)
    if beyond:
        return -1 if beyond < 0 else _FAR
    return max(<int64_t>-1, min(found, _FAR))


cdef tuple _change(vector, geometry, prints, bits_left, keys_left, bint to_write):
    cdef _Vectors held = _Vectors(1)
    held.add(vector, geometry, to_write)
    cdef _Prints keys = _Prints(prints)
    if keys.n > _MOST_PRINTS and not to_write:
        raise ValueError(f"at most {_MOST_PRINTS} fingerprints fit one call, got {keys.n}")
    cdef bloom_change change
    change.bits_left = _limit(bits_left)
    change.keys_left = _limit(keys_left)
    change.taken = change.bits = 0
    new = np.empty(keys.n, _bool)
    cdef Py_buffer marks
    cdef int outcome = 0
    cdef unsigned most_threads = max(1, min(threads.THREADS, <int>BLOOM_MOST_PARTS))
    cdef size_t least = threads.LEAST_KEYS
    PyObject_GetBuffer(new, &marks, PyBUF_SIMPLE)
    with nogil:
        if to_write:
            bloom_insert_shared(
                held.vectors, keys.words, keys.n, <uint8_t *>marks.buf, &change, most_threads, least
            )
        else:
            outcome = bloom_preview(
                held.vectors, keys.words, keys.n, <uint8_t *>marks.buf, &change
            )
    PyBuffer_Release(&marks)
    if outcome:
        raise MemoryError
    return change.taken, new if change.taken == <int64_t>keys.n else new[:change.taken], change.bits


def preview(vector, geometry, prints, bits_left, keys_left):
    """Tells the changes that adding the keys in order would make: (taken, new, bits)."""
    return _change(vector, geometry, prints, bits_left, keys_left, False)


def insert(vector, geometry, prints, bits_left, keys_left):
    """The same as preview, and the bits are set."""
    return _change(vector, geometry, prints, bits_left, keys_left, True)


def apply(vector, geometry, prints):
    """Set all bits of all keys, without limits and without counting (replay)."""
    cdef _Vectors held = _Vectors(1)
    held.add(vector, geometry, True)
    cdef _Prints keys = _Prints(prints)
    cdef unsigned parts = bloom_shares_of(held.vectors, _parts_of(keys.n))
    with nogil:
        if parts > 1:
            bloom_insert_in_parts(held.vectors, keys.words, keys.n, NULL, parts)
        else:
            bloom_apply(held.vectors, keys.words, keys.n)


def mark(flags, unsigned shift, geometry, prints):
    """Set the flag of each bit of these keys, by its address >> shift."""
    cdef bloom_vector v
    cdef uint64_t bits = 8 * _describe(&v, geometry)
    cdef _Prints keys = _Prints(prints)
    cdef Py_buffer view
    _take(flags, "flags", "uint8", 1, &view)
    try:
        if view.readonly:
            raise ValueError("flags must be writable, got a read-only array")
        if not 9 <= shift <= 63 or <uint64_t>view.len <= (bits - 1) >> shift:
            raise ValueError(f"{view.len} flags do not fit {bits} bits, shifted by {shift}")
        with nogil:
            bloom_mark(&v, keys.words, keys.n, <uint8_t *>view.buf, view.len, shift)
    finally:
        PyBuffer_Release(&view)


def count_bits(vector):
    """How many bits are set, in all bytes."""
    cdef Py_buffer view
    cdef uint64_t count
    _take(vector, "vector", "uint8", 1, &view)
    with nogil:
        count = bloom_count(<const uint8_t *>view.buf, view.len)
    PyBuffer_Release(&view)
    return count


def murmur128(from_bytes, uint32_t seed):
    """The Murmur3 x64 128 digest of a bytes-like object: 16 bytes, as mmh3 gives it."""
    cdef const uint8_t[::1] given = from_bytes
    cdef size_t n = given.shape[0]
    cdef bloom_print out = bloom_murmur(&given[0] if n else NULL, n, seed)
    return out.h1.to_bytes(8, "little") + out.h2.to_bytes(8, "little")


include "checksum.pxi"
include "find_keys.pxi"
include "fingerprints.pxi"
include "single_key.pxi"
