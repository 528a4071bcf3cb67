# Checksums of blocks. Part of compiled.pyx; numpy_twin.block_checksums says what it means, and
# does it where the processor has no instruction for crc32c.

from bloomstore.kernels import numpy_twin

cdef extern from "checksum.h" nogil:
    enum:
        BLOOM_IDENTITY_BYTES
    int bloom_can_checksum()
    uint64_t bloom_checksums(
        const uint8_t *, size_t, const uint8_t *, size_t, const int64_t *, size_t, uint32_t *)

cdef bint _CAN_CHECKSUM = bloom_can_checksum()


def block_checksums(vector, bytes identity not None, size_t block_bytes, blocks):
    """The crc32c of each of these blocks, as uint32, and the set bits of all of them."""
    if not _CAN_CHECKSUM:
        return numpy_twin.block_checksums(vector, identity, block_bytes, blocks)
    contract.check_blocks(vector, identity, block_bytes, blocks)
    cdef Py_buffer memory, numbers
    cdef uint64_t set_bits
    _take(vector, "vector", "uint8", 1, &memory)
    try:
        _take(blocks, "blocks", "int64", 1, &numbers)
    except BaseException:
        PyBuffer_Release(&memory)
        raise
    checksums = np.empty(len(blocks), np.uint32)
    cdef uint32_t[::1] out = checksums
    cdef uint32_t *first = &out[0] if len(blocks) else NULL
    cdef const uint8_t *named = identity
    with nogil:
        set_bits = bloom_checksums(
            <const uint8_t *>memory.buf, memory.len, named, block_bytes,
            <const int64_t *>numbers.buf, numbers.shape[0], first
        )
    PyBuffer_Release(&numbers)
    PyBuffer_Release(&memory)
    return checksums, set_bits
