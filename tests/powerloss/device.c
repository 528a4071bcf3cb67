/* A library under the process: it records every file operation in order, or makes some fail.
   What it takes from the environment and what it writes: device.py. What the calls share:
   device.h. */
#include "device.h"

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static void note_open(const char *path, int flags, int fd, uint64_t before) {
    struct stat status;
    if (fd < 0 || fstat(fd, &status)) return;
    if (!before && (flags & O_CREAT)) record('C', status.st_ino, 0, 0, path, NULL, 0);
    else if ((flags & O_TRUNC) && (flags & O_ACCMODE) != O_RDONLY)
        record('T', status.st_ino, 0, 0, NULL, NULL, 0);
}

#define OPEN(folder, path, flags, call) \
    char whole[PATH_MAX]; \
    if (!full_path(folder, path, whole)) return call; \
    begin(); \
    uint64_t before = inode_at(whole); \
    int fd = -1; \
    if (!fails("open", whole)) { \
        fd = call; \
        int kept = errno; \
        note_open(whole, flags, fd, before); \
        errno = kept; \
    } \
    end(); \
    return fd

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list more; \
        va_start(more, flags); \
        mode = va_arg(more, int); \
        va_end(more); \
    }

int open(const char *path, int flags, ...) {
    MODE(flags)
    REAL(open);
    OPEN(AT_FDCWD, path, flags, real(path, flags, mode));
}
int openat(int folder, const char *path, int flags, ...) {
    MODE(flags)
    REAL(openat);
    OPEN(folder, path, flags, real(folder, path, flags, mode));
}

/* Whether writes through it are on the device when they return: LMDB commits by one of these. */
static int is_direct(int fd) {
    int kept = errno, flags = fcntl(fd, F_GETFL);
    errno = kept;
    return flags >= 0 && (flags & O_DSYNC);
}

/* A write that was made: in the page cache, and on the device if the descriptor is made so. */
static void note_write(int fd, uint64_t inode, const void *bytes, ssize_t done, off_t offset) {
    if (done <= 0) return;
    int kept = errno;
    record('W', inode, offset, done, NULL, bytes, done);
    if (is_direct(fd)) record('G', inode, offset, done, NULL, NULL, 0);
    errno = kept;
}

static off_t place(int fd, off_t size) {
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && (flags & O_APPEND) ? size : lseek(fd, 0, SEEK_CUR);
}

#define WRITE(where, call) \
    char path[PATH_MAX]; struct stat status; \
    if (!counts(fd, path, &status)) return call; \
    begin(); \
    ssize_t done = -1; \
    if (!fails(is_direct(fd) ? "commit" : "write", path)) { \
        off_t offset = where; \
        done = call; \
        note_write(fd, status.st_ino, bytes, done, offset); \
    } \
    end(); \
    return done

ssize_t write(int fd, const void *bytes, size_t length) {
    REAL(write);
    char named[PATH_MAX];
    if (ready && acks[0] && path_of(fd, named) && !strcmp(named, acks)) {
        begin();
        record('A', 0, 0, length, NULL, bytes, length);
        ssize_t made = real(fd, bytes, length);
        end();
        return made;
    }
    WRITE(place(fd, status.st_size), real(fd, bytes, length));
}
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at) {
    REAL(pwrite);
    WRITE(at, real(fd, bytes, length, at));
}

static char *joined(const struct iovec *parts, int count) {
    size_t length = 0, at = 0;
    for (int i = 0; i < count; i++) length += parts[i].iov_len;
    char *whole = malloc(length ? length : 1);
    for (int i = 0; i < count; i++) {
        memcpy(whole + at, parts[i].iov_base, parts[i].iov_len);
        at += parts[i].iov_len;
    }
    return whole;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev);
    char path[PATH_MAX]; struct stat status;
    if (!counts(fd, path, &status)) return real(fd, parts, count);
    begin();
    ssize_t done = -1;
    if (!fails(is_direct(fd) ? "commit" : "write", path)) {
        char *bytes = joined(parts, count);
        off_t offset = place(fd, status.st_size);
        done = real(fd, parts, count);
        note_write(fd, status.st_ino, bytes, done, offset);
        free(bytes);
    }
    end();
    return done;
}

#define SYNC(call) \
    char path[PATH_MAX]; struct stat status; \
    if (!counts(fd, path, &status)) return call; \
    begin(); \
    int result = 0; \
    if (fails("sync", path)) { \
        record('X', status.st_ino, 0, 0, NULL, NULL, 0); \
        result = -1; \
    } else { \
        if (!skip_syncs) result = call; \
        char kind = S_ISDIR(status.st_mode) ? 'H' : 'F'; \
        if (!result) record(kind, status.st_ino, 0, 0, NULL, NULL, 0); \
    } \
    end(); \
    return result

int fsync(int fd) { REAL(fsync); SYNC(real(fd)); }
int fdatasync(int fd) { REAL(fdatasync); SYNC(real(fd)); }

int msync(void *start, size_t length, int flags) {
    REAL(msync);
    if (!ready) return real(start, length, flags);
    begin();
    struct map *m = NULL;
    for (int i = map_count - 1; i >= 0 && !m; i--) {
        char *first = maps[i].start;
        if ((char *)start >= first && (char *)start < first + maps[i].length) m = &maps[i];
    }
    int result = 0;
    if (m && fails("msync", m->path)) {
        record('X', m->inode, 0, 0, NULL, NULL, 0);
        result = -1;
    } else {
        if (!m || !skip_syncs) result = real(start, length, flags);
        if (m && !result && (flags & MS_SYNC))
            record('G', m->inode, m->offset + ((char *)start - m->start), length, NULL, NULL, 0);
    }
    end();
    return result;
}

int ftruncate(int fd, off_t length) {
    REAL(ftruncate);
    char path[PATH_MAX]; struct stat status;
    if (!counts(fd, path, &status)) return real(fd, length);
    begin();
    int result = -1;
    if (!fails("truncate", path) && !(result = real(fd, length)))
        record('T', status.st_ino, length, 0, NULL, NULL, 0);
    end();
    return result;
}

int posix_fallocate(int fd, off_t at, off_t length) {
    REAL(posix_fallocate);
    char path[PATH_MAX]; struct stat status;
    if (!counts(fd, path, &status)) return real(fd, at, length);
    begin();
    int result;
    if (fails("allocate", path)) result = errno;
    else if (!(result = real(fd, at, length)))
        record('E', status.st_ino, at + length, 0, NULL, NULL, 0);
    end();
    return result;
}

#define NAMES(folder, path, kind, what, call) \
    char whole[PATH_MAX]; \
    if (!full_path(folder, path, whole)) return call; \
    begin(); \
    uint64_t before = inode_at(whole); \
    int result = -1; \
    if (!fails(what, whole) && !(result = call)) \
        record(kind, before ? before : inode_at(whole), 0, 0, whole, NULL, 0); \
    end(); \
    return result

int unlink(const char *path) { REAL(unlink); NAMES(AT_FDCWD, path, 'U', "unlink", real(path)); }
int rmdir(const char *path) { REAL(rmdir); NAMES(AT_FDCWD, path, 'U', "unlink", real(path)); }
int unlinkat(int folder, const char *path, int flags) {
    REAL(unlinkat);
    NAMES(folder, path, 'U', "unlink", real(folder, path, flags));
}
int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    NAMES(AT_FDCWD, path, 'D', "mkdir", real(path, mode));
}

int rename(const char *from, const char *to) {
    REAL(rename);
    char old[PATH_MAX], new[PATH_MAX], both[2 * PATH_MAX];
    if (!full_path(AT_FDCWD, from, old) || !full_path(AT_FDCWD, to, new)) return real(from, to);
    begin();
    uint64_t inode = inode_at(old);
    int result = -1;
    if (!fails("rename", new) && !(result = real(from, to))) {
        snprintf(both, sizeof both, "%s\n%s", old, new);
        record('N', inode, 0, 0, both, NULL, 0);
    }
    end();
    return result;
}

static void note_map(char *start, size_t length, const char *path, struct stat *status, off_t at) {
    if (at >= status->st_size) return;
    if (map_count == MAX_MAPS) abort();
    size_t used = (size_t)(status->st_size - at) < length ? (size_t)(status->st_size - at) : length;
    struct map m = { start, used, status->st_ino, at, NULL, strdup(path) };
    if (log_fd >= 0) {
        m.copy = malloc(used);
        memcpy(m.copy, start, used);
        for (size_t page = 0; page < used; page += PAGE) {   /* what a killed process left unseen */
            size_t part = used - page < PAGE ? used - page : PAGE;
            record('S', m.inode, at + page, part, NULL, m.copy + page, part);
        }
    }
    maps[map_count++] = m;
}

void *mmap(void *where, size_t length, int protection, int flags, int fd, off_t at) {
    REAL(mmap);
    char path[PATH_MAX]; struct stat status;
    if ((flags & MAP_ANONYMOUS) || !counts(fd, path, &status))
        return real(where, length, protection, flags, fd, at);
    begin();
    void *made = MAP_FAILED;
    if (!fails("mmap", path)) made = real(where, length, protection, flags, fd, at);
    if (made != MAP_FAILED && (flags & MAP_SHARED) && (protection & PROT_WRITE))
        note_map(made, length, path, &status, at);
    end();
    return made;
}

int munmap(void *start, size_t length) {
    REAL(munmap);
    int found = -1;
    for (int i = 0; ready && i < map_count; i++) if (maps[i].start == (char *)start) found = i;
    if (found < 0) return real(start, length);
    begin();
    for (int i = 0; i < map_count; i++)
        if (maps[i].start == (char *)start) {
            free(maps[i].copy);
            free(maps[i].path);
            maps[i--] = maps[--map_count];
        }
    int result = real(start, length);
    end();
    return result;
}

/* On 64-bit machines these are the same calls by another name. What is called by a name that is not
   here shows when the folder is compared with what was recorded. */
#define ALSO(name) extern __typeof__(name) name##64 __attribute__((alias(#name)))
ALSO(open); ALSO(openat); ALSO(pwrite); ALSO(ftruncate); ALSO(posix_fallocate); ALSO(mmap);

__attribute__((constructor)) static void start(void) {
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&mutex, &kind);
    const char *folder = getenv("DEVICE_ROOT"), *log = getenv("DEVICE_LOG");
    const char *faults = getenv("DEVICE_FAULTS"), *acknowledged = getenv("DEVICE_ACKS");
    if (!folder) return;
    snprintf(root, sizeof root, "%s", folder);
    root_length = strlen(root);
    if (acknowledged) snprintf(acks, sizeof acks, "%s", acknowledged);
    skip_syncs = getenv("DEVICE_SKIP_SYNCS") != NULL;
    if (log) {
        int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
        log_fd = syscall(SYS_openat, AT_FDCWD, log, flags, 0600);
        order_fd = syscall(SYS_openat, AT_FDCWD, log, O_RDONLY | O_CLOEXEC);
        if (log_fd < 0 || order_fd < 0) abort();
    }
    if (faults) device_faults(faults);
    ready = 1;
    begin();
    record('B', inode_at(root), 0, 0, root, NULL, 0);
    end();
}

__attribute__((destructor)) static void stop(void) {
    if (!ready) return;
    begin();
    record('Z', 0, 0, 0, NULL, NULL, 0);
    end();
}
