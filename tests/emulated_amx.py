"""AMX on processors that lack it: a pytest plugin that emulates each tile instruction when the processor refuses it.

    NUMBA_CPU_FEATURES=... DMLCPU_ISA=amx python -m pytest -p no:faulthandler -p emulated_amx ...

A processor without AMX raises SIGILL at a tile instruction. The handler decodes the instruction by Intel's manual
(Software Developer's Manual, volume 2, and chapter 18 of volume 1), emulates it in memory, and resumes behind it. So
the machine code is that of a processor with AMX. Linux on x86-64 only. Forbidden operations (no configuration, tiles of
shapes that do not fit) end the process, each with a status of its own.
"""

import ctypes
import signal

import numpy as np
from llvmlite import binding, ir
from numba import carray, cfunc, types
from numba.extending import intrinsic

THREADS, TILES, TILE_BYTES = 64, 8, 1024
# For each thread, int64: its id, whether it is configured, then rows and bytes a row of each tile.
_state = np.zeros((THREADS, 2 + 2 * TILES), np.int64)
_tiles = np.zeros((THREADS, TILES, TILE_BYTES), np.uint8)
_done = np.zeros(2, np.int64)  # products, and tiles released

_libc = ctypes.CDLL(None)
_pthread_self, _exit = _libc.pthread_self, _libc._exit
_pthread_self.restype, _pthread_self.argtypes = ctypes.c_int64, []
_exit.restype, _exit.argtypes = None, [ctypes.c_int]
UNKNOWN, NOT_CONFIGURED, MISFIT, TOO_MANY = 101, 102, 103, 104

# struct ucontext on x86-64 Linux, in words of 64 bits: the general registers, as the kernel orders them.
_RIP = 5 + 16
_REGISTERS = tuple(
    5 + i for i in (13, 14, 12, 11, 15, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7)
)  # rax, rcx, rdx, rbx, rsp, ...


def _at(kind):
    @intrinsic
    def pointer(_context, address):
        def generate(_context, builder, _signature, arguments):
            return builder.inttoptr(arguments[0], ir.IntType(kind.bitwidth).as_pointer())

        return types.CPointer(kind)(address), generate

    return pointer


_bytes_at, _words_at = _at(types.uint8), _at(types.int64)
_STATE, _TILES, _DONE = (array.ctypes.data for array in (_state, _tiles, _done))  # Numba would copy arrays


def _handler(_number, _information, context):
    states = carray(_words_at(_STATE), (THREADS, 2 + 2 * TILES))
    done = carray(_words_at(_DONE), 2)
    registers = carray(context, 23)
    code = carray(_bytes_at(registers[_RIP]), 12)
    if code[0] != 0xC4 or code[1] & 0x1F != 2 or code[2] & 0x84 != 0:  # three bytes of VEX, map 0F38, W0, 128 bits
        _exit(UNKNOWN)
    prefix, operation, form = code[2] & 3, code[3], code[4]
    mode, register, low = form >> 6, form >> 3 & 7, form & 7

    me, thread = _pthread_self(), 0
    while thread < THREADS and states[thread, 0] != me:
        if states[thread, 0] == 0:
            states[thread, 0] = me
        else:
            thread += 1
    if thread == THREADS:
        _exit(TOO_MANY)
    state, length = states[thread], 5
    tiles = carray(_bytes_at(_TILES + thread * TILES * TILE_BYTES), (TILES, TILE_BYTES))

    address, step = np.int64(0), np.int64(0)
    if mode != 3:
        base = low | (0 if code[1] & 0x20 else 8)
        if low == 4:
            index = code[5] >> 3 & 7 | (0 if code[1] & 0x40 else 8)
            base = code[5] & 7 | (0 if code[1] & 0x20 else 8)
            step = registers[_REGISTERS[index]] << (code[5] >> 6) if index != 4 else 0
            length = 6
        if mode == 0 and base & 7 == 5:
            _exit(UNKNOWN)  # relative to the next instruction, or without a base
        address = registers[_REGISTERS[base]]
        if mode == 1:
            address += np.int64(np.int8(code[length]))
            length += 1
        elif mode == 2:
            shift = np.uint32(0)
            for i in range(4):
                shift |= np.uint32(code[length + i]) << np.uint32(8 * i)
            address += np.int64(np.int32(shift))
            length += 4

    if operation == 0x49 and prefix == 0 and mode != 3:  # ldtilecfg
        given = carray(_bytes_at(address), 64)
        if given[0] != 1:
            _exit(MISFIT)
        state[1] = 1
        for tile in range(TILES):
            state[2 + 2 * tile] = given[48 + tile]
            state[3 + 2 * tile] = given[16 + 2 * tile] | np.int64(given[17 + 2 * tile]) << 8
        tiles[...] = 0
    elif operation == 0x49 and prefix == 0 and form == 0xC0:  # tilerelease
        state[1] = 0
        tiles[...] = 0
        done[1] += 1
    elif state[1] == 0:
        _exit(NOT_CONFIGURED)
    elif operation == 0x49 and prefix == 3 and mode == 3:  # tilezero
        tiles[register, :] = 0
    elif operation == 0x4B and (prefix == 3 or prefix == 2) and low == 4:  # tileloadd, tilestored
        rows, width = state[2 + 2 * register], state[3 + 2 * register]
        for row in range(rows):
            memory = carray(_bytes_at(address + row * step), 64)
            for i in range(width):
                if prefix == 3:
                    tiles[register, 64 * row + i] = memory[i]
                else:
                    memory[i] = tiles[register, 64 * row + i]
    elif operation == 0x5E and prefix == 1 and mode == 3:  # tdpbusd: unsigned by signed
        right = ~(code[2] >> 3) & 7
        rows, groups, width = state[2 + 2 * register], state[2 + 2 * right], state[3 + 2 * right]
        if rows != state[2 + 2 * low] or 4 * groups != state[3 + 2 * low] or width != state[3 + 2 * register]:
            _exit(MISFIT)
        sums, a, b = tiles[register].view(np.int32), tiles[low], tiles[right].view(np.int8)
        for row in range(rows):
            for group in range(groups):
                for i in range(4):
                    left = np.int32(a[64 * row + 4 * group + i])
                    for column in range(width // 4):
                        sums[16 * row + column] += left * np.int32(b[64 * group + 4 * column + i])
        done[0] += 1
    else:
        _exit(UNKNOWN)
    registers[_RIP] += length


class _Action(ctypes.Structure):
    """struct sigaction of the C library."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_uint8 * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


def features():
    """Return a value for NUMBA_CPU_FEATURES: this processor's features and those of AMX."""
    found = {**binding.get_host_cpu_features(), "amx-tile": True, "amx-int8": True}
    return ",".join(f"{'+' if has else '-'}{name}" for name, has in sorted(found.items()))


def install():
    """Emulate tile instructions from now on, and make dmlcpu believe that the system grants them."""
    from dmlcpu.runtime import isa

    global _compiled
    _compiled = cfunc(types.void(types.int32, types.voidptr, types.CPointer(types.int64)))(_handler)
    SA_SIGINFO, SA_NODEFER = 4, 0x40000000
    action = _Action(_compiled.address, flags=SA_SIGINFO | SA_NODEFER)
    if _libc.sigaction(int(signal.SIGILL), ctypes.byref(action), None):
        raise OSError("sigaction")
    isa._request_amx = lambda: True


def pytest_sessionstart():
    install()


def pytest_sessionfinish():
    products, releases = _done
    configured = int(_state[:, 1].sum())
    print(f"\nemulated AMX: {products} products, {releases} releases, {configured} threads left with tiles")
