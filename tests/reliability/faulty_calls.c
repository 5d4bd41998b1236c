/* Lets system calls on files below a folder fail at random: preloaded into a process, and from `faults_begin` on.
   Calls fail before they do anything, except that reads and writes may do a part. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static char root[PATH_MAX];
static uint64_t seed, calls, faults, odds; /* a call in `odds` fails; 0: none */

uint64_t faults_end(void) {
    odds = 0;
    return faults;
}

void faults_begin(uint64_t new_seed, uint64_t new_odds, const char *folder) {
    snprintf(root, sizeof root, "%s", folder);
    seed = new_seed;
    calls = faults = 0;
    odds = new_odds;
}

__attribute__((constructor)) static void begin_worker(void) { /* processes that are started get it by a variable */
    const char *text = getenv("DMLCPU_FAULTS");
    unsigned long long of_seed, of_odds;
    char folder[PATH_MAX];
    if (text && sscanf(text, "%llu %llu %4095s", &of_seed, &of_odds, folder) == 3) faults_begin(of_seed, of_odds, folder);
}

static uint64_t drawn(void) { /* splitmix64 */
    uint64_t z = seed + 0x9e3779b97f4a7c15u * (1 + __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED));
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int is_below(const char *path) { return strncmp(path, root, strlen(root)) == 0; }

static int is_file_below(int file) {
    char link[40], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return is_below(path);
}

static int is_meant(int folder, const char *path) {
    return odds && path && (*path == '/' ? is_below(path) : folder != AT_FDCWD && is_file_below(folder));
}

/* Return a draw if a call is to fail, else 0. */
static uint64_t failing(void) {
    uint64_t number = drawn();
    if (number % odds) return 0;
    __atomic_fetch_add(&faults, 1, __ATOMIC_RELAXED);
    return number / odds | 1;
}

static const int OF_READS[] = {EIO, ESTALE}, OF_WRITES[] = {EIO, ENOSPC, ESTALE, EDQUOT};
#define ONE_OF(numbers, draw) numbers[(draw) / 4 % (sizeof numbers / sizeof *numbers)]
#define FAIL(numbers, meant) \
    if (meant) { \
        uint64_t draw = failing(); \
        if (draw) { \
            errno = ONE_OF(numbers, draw); \
            return -1; \
        } \
    }
#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        REAL(int, name, const char *, int, ...); \
        if (flags & O_CREAT) { FAIL(OF_WRITES, is_meant(AT_FDCWD, path)) } \
        else { FAIL(OF_READS, is_meant(AT_FDCWD, path)) } \
        return real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        REAL(int, name, int, const char *, int, ...); \
        if (flags & O_CREAT) { FAIL(OF_WRITES, is_meant(folder, path)) } \
        else { FAIL(OF_READS, is_meant(folder, path)) } \
        return real(folder, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)

#define STAT(name) \
    int name(const char *path, struct stat64 *status) { \
        REAL(int, name, const char *, struct stat64 *); \
        FAIL(OF_READS, is_meant(AT_FDCWD, path)) \
        return real(path, status); \
    }
STAT(stat64)
STAT(lstat64)

int fstat64(int file, struct stat64 *status) {
    REAL(int, fstat64, int, struct stat64 *);
    FAIL(OF_READS, odds && is_file_below(file))
    return real(file, status);
}

int fstatat64(int folder, const char *path, struct stat64 *status, int flags) {
    REAL(int, fstatat64, int, const char *, struct stat64 *, int);
    FAIL(OF_READS, is_meant(folder, path))
    return real(folder, path, status, flags);
}

int mkdir(const char *path, mode_t mode) {
    REAL(int, mkdir, const char *, mode_t);
    FAIL(OF_WRITES, is_meant(AT_FDCWD, path))
    return real(path, mode);
}

int rename(const char *old, const char *new) {
    REAL(int, rename, const char *, const char *);
    FAIL(OF_WRITES, is_meant(AT_FDCWD, old))
    return real(old, new);
}

int renameat(int from, const char *old, int to, const char *new) {
    REAL(int, renameat, int, const char *, int, const char *);
    FAIL(OF_WRITES, is_meant(from, old))
    return real(from, old, to, new);
}

int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
    REAL(int, renameat2, int, const char *, int, const char *, unsigned);
    FAIL(OF_WRITES, is_meant(from, old))
    return real(from, old, to, new, flags);
}

int fsync(int file) {
    REAL(int, fsync, int);
    FAIL(OF_WRITES, odds && is_file_below(file))
    return real(file);
}

/* Return how many bytes a call may read or write: fewer than it asks for, or -1 with an error, if it is to fail. */
static ssize_t allowed(int file, size_t size, const int *numbers, size_t count) {
    if (!odds || !is_file_below(file)) return size;
    uint64_t draw = failing();
    if (!draw) return size;
    if (size > 1 && draw & 2) return 1 + draw / 4 % (size - 1);
    errno = numbers[draw / 4 % count];
    return -1;
}
#define FEWER(size, numbers) \
    ssize_t fewer = allowed(file, size, numbers, sizeof numbers / sizeof *numbers); \
    if (fewer < 0) return -1

ssize_t read(int file, void *into, size_t size) {
    REAL(ssize_t, read, int, void *, size_t);
    FEWER(size, OF_READS);
    return real(file, into, fewer);
}

ssize_t pread64(int file, void *into, size_t size, off64_t at) {
    REAL(ssize_t, pread64, int, void *, size_t, off64_t);
    FEWER(size, OF_READS);
    return real(file, into, fewer, at);
}

ssize_t preadv64v2(int file, const struct iovec *into, int count, off64_t at, int flags) { /* of one buffer */
    REAL(ssize_t, preadv64v2, int, const struct iovec *, int, off64_t, int);
    FEWER(into->iov_len, OF_READS);
    struct iovec one = {into->iov_base, fewer};
    return count == 1 ? real(file, &one, 1, at, flags) : real(file, into, count, at, flags);
}

ssize_t preadv64(int file, const struct iovec *into, int count, off64_t at) {
    return preadv64v2(file, into, count, at, 0);
}

ssize_t write(int file, const void *from, size_t size) {
    REAL(ssize_t, write, int, const void *, size_t);
    FEWER(size, OF_WRITES);
    return real(file, from, fewer);
}

ssize_t pwrite64(int file, const void *from, size_t size, off64_t at) {
    REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t);
    FEWER(size, OF_WRITES);
    return real(file, from, fewer, at);
}
