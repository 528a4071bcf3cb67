# One key at a time, in one go from the key to the bits. Part of compiled.pyx; its twin is single_key.py.
#
# Lookup: compare the generation word, hash, look at the bits of each vector, newest first.
# Add: nothing is done here while a batch is open: the key may belong to it.
# Add (durability `process`): likewise, when the writer lock is kept by this process and no thread is
# inside; the bits and counts of the newest stage are changed in the shared mapping. Everything else
# goes to `_contains_slowly` and `_add_slowly` of the handle.
#
# Invariants
#   1. The generation is compared once, before the first bit is looked at.
#   2. Nothing here lets go of the GIL: a thread that takes the writer lock, or gives it back, comes
#      before or after a whole add.
#   3. The word `applying` names the segment while its bits and its counts may differ.

# No catalog counts as far as this: as a generation it means "ask slowly", whatever the word says.
cdef uint64_t NEVER = <uint64_t>-1

# Words of the lock page and of a segment; see store/process/writer_lock.py and segment/segment.py.
cdef enum:
    _GENERATION = 0
    _WANTED = 2
    _APPLYING = 3
    _SET_BITS = 0
    _KEYS = 1
    _FLAGS = 8  # bytes from here to the end of the page


cdef class Keeper:
    """The state of the writer lock as a single add needs it: kept by this process, and free."""

    cdef public bint is_free
    cdef public uint64_t adds
    cdef public int64_t tenure


cdef class _Words:
    """64-bit words of a shared mapping, held while they are pointed at."""

    cdef Py_buffer view
    cdef volatile uint64_t *at

    def __cinit__(self, object words, bint to_write, Py_ssize_t least):
        cdef int flags = PyBUF_FORMAT | PyBUF_STRIDES
        PyObject_GetBuffer(words, &self.view, flags | PyBUF_WRITABLE if to_write else flags)
        if self.view.itemsize != 8 or self.view.len < 8 * least:
            raise ValueError(f"expected at least {least} words of 64 bits")
        self.at = <volatile uint64_t *>self.view.buf

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


cdef object _one_print(bloom_print made):
    """A fingerprint as a batch of one."""
    cdef Py_buffer view
    prints = np.empty((1, 2), _uint64)
    PyObject_GetBuffer(prints, &view, PyBUF_WRITABLE)
    (<uint64_t *>view.buf)[0] = made.h1
    (<uint64_t *>view.buf)[1] = made.h2
    PyBuffer_Release(&view)
    return prints


cdef class OneKey:
    """Single lookups and adds of a handle."""

    cdef readonly object _seed
    cdef public uint64_t _fast_generation
    cdef public int64_t _dirty_tenure
    cdef public bint _adds_durably
    cdef public dict _batches  # those that are open, of any thread
    cdef volatile uint64_t *generation  # in `words`
    cdef bloom_one one
    cdef _Words words
    cdef _Vectors asked
    cdef Keeper keeper
    cdef _Vectors target
    cdef _Words counts
    cdef uint64_t number
    cdef int64_t most_bits, most_keys
    cdef unsigned shift  # from the address of a bit to its flag
    cdef size_t flags
    cdef int64_t marked_tenure  # in which all flags were seen to be set; storing them takes 5 ns

    def __cinit__(self, *_, **__):
        self._fast_generation = NEVER  # in case a subclass forgets to call __init__

    def __init__(self, seed):
        self._seed = seed
        self._dirty_tenure = -1
        self._batches = {}
        self.one.seeds = _seeds(seed)

    def _point_at(self, words, vectors, geometries):
        """Takes the vectors to ask, newest first, and the page with the generation word."""
        self._fast_generation = NEVER
        self._dirty_tenure = -1
        self._adds_durably = False
        self.keeper = None
        cdef _Vectors held = _Vectors(len(vectors))
        for vector, geometry in zip(vectors, geometries, strict=True):
            held.add(vector, geometry, False)
        self.words = _Words(words, False, 4)
        self.generation = self.words.at + _GENERATION
        self.asked = held
        bloom_point_at(&self.one, held.vectors, held.count)

    def _add_into(self, Keeper keeper not None, words, vector, geometry, counts, number,
                  most_bits, most_keys, unsigned shift):
        """Takes the newest stage for adds: its vector, counts with flags, and limits of both."""
        self.keeper = None
        self.target = _Vectors(1)
        self.target.add(vector, geometry, True)
        self.words = _Words(words, True, 4)
        self.generation = self.words.at + _GENERATION
        self.counts = _Words(counts, True, 512)
        self.flags = 1 + ((8 * self.target.vectors.bytes - 1) >> min(shift, 63))
        if shift < 9 or self.flags > 4096 - 8 * _FLAGS:
            raise ValueError(f"no room for the flags of {geometry}, shifted by {shift}")
        self.shift = shift
        self.marked_tenure = -2
        self.number = number
        self.most_bits = most_bits
        self.most_keys = most_keys
        self.keeper = keeper

    def __contains__(self, key):
        """Whether the key may have been added. False is certain."""
        cdef int answer = -1
        if self._fast_generation != NEVER and self.generation[0] == self._fast_generation:
            answer = self.one.ask(&self.one, <PyObject *>key)
        if answer < 0:
            return self.contains_slowly(key)
        return answer != 0

    cdef bint contains_slowly(self, object key) except -1:
        """Apart, so that the fast path need not save registers for it."""
        return self._contains_slowly(key)

    @property
    def is_quick(self):
        """Whether lookups go straight to the bits, which only those of a sound filter do."""
        return self._fast_generation != NEVER

    @cython.binding(False)  # as a plain method descriptor it is called in half the time
    @cython.embedsignature(True)
    @cython.embedsignature.format("clinic")
    def add(self, key):
        """Adds a key; True if the filter did not report it before.

        When this returns, every later lookup in every process finds the key, and so does a
        reopened store, to the degree that the filter's durability promises.
        """
        cdef bloom_print made
        cdef size_t i
        cdef int outcome
        if len(self._batches):
            return self._add_slowly(key)
        if self._adds_durably:
            return self.add_durably(key)
        if (
            self.keeper is None
            or not self.keeper.is_free
            or self.keeper.tenure != self._dirty_tenure
            or self._fast_generation == NEVER
            or self.words.at[_GENERATION] != self._fast_generation
            or self.words.at[_WANTED]
            or not bloom_print_of(<PyObject *>key, &self.one.seeds, &made)
        ):
            return self._add_slowly(key)
        for i in range(1, self.asked.count):
            if bloom_has(self.asked.vectors + i, made.h1, made.h2):
                return False
        outcome = self.change(made)
        return self._add_slowly(key) if outcome < 0 else outcome == 1

    cdef object add_durably(self, object key):
        """A key that is reported was made durable before its bits; every other one needs a commit.

        The second look at the generation says that no rebuild had begun by then.
        """
        cdef bloom_print made
        cdef size_t i
        cdef bint is_known = False
        cdef uint64_t generation = self._fast_generation
        if (
            generation == NEVER
            or self.words.at[_GENERATION] != generation
            or not bloom_print_of(<PyObject *>key, &self.one.seeds, &made)
        ):
            return self._add_slowly(key)
        for i in range(self.asked.count):
            if bloom_has(self.asked.vectors + i, made.h1, made.h2):
                is_known = True
                break
        if self.words.at[_GENERATION] != generation:
            return self._add_slowly(key)
        if is_known:
            return False
        return self._add_unknown_slowly(_one_print(made), generation)

    def _missing_bits(self, prints, uint64_t generation):
        """How many bits of the newest stage a key would set; -1 when the handle has moved on."""
        if self._fast_generation != generation or generation == NEVER:
            return -1
        cdef _Prints key = _Prints(prints)
        return bloom_missing(self.asked.vectors, key.words[0], key.words[1])

    def _set_bits(self, prints, uint64_t generation):
        """Sets the bits of one key in the newest stage; False when this handle cannot."""
        if (
            self._fast_generation != generation
            or generation == NEVER
            or not self.asked.count
            or self.asked.views[0].readonly
        ):
            return False
        cdef _Prints key = _Prints(prints)
        bloom_apply(self.asked.vectors, key.words, 1)
        return True

    cdef int change(self, bloom_print made):
        """Sets the bits of a key: 1 if it is new, 0 if it was reported, -1 if it does not fit."""
        cdef bloom_vector *v = self.target.vectors
        cdef uint64_t set_bits = self.counts.at[_SET_BITS], keys = self.counts.at[_KEYS]
        cdef bint has_room = (
            <int64_t>set_bits + v.hashes <= self.most_bits and <int64_t>keys < self.most_keys
        )
        self.words.at[_APPLYING] = self.number
        cdef uint8_t *flags = NULL
        if self.marked_tenure != self._dirty_tenure:
            flags = <uint8_t *>(self.counts.at + _FLAGS)
            if not self.keeper.adds % 64 and memchr(flags, 0, self.flags) is NULL:
                self.marked_tenure = self._dirty_tenure  # no flag is cleared in this tenure
        cdef int bits = bloom_add(v, made.h1, made.h2, has_room, flags, self.shift)
        if bits > 0:
            self.counts.at[_SET_BITS] = set_bits + bits
            self.counts.at[_KEYS] = keys + 1
            self.keeper.adds += 1
        self.words.at[_APPLYING] = 0
        return 1 if bits > 0 else bits
