"""The process in which kernels run: a crash or an endless loop ends it, not the caller.

Run by path, with the standard library only, so that it starts in milliseconds. It reads one JSON request a line from
standard input and answers one JSON line on standard output; data lie in a shared memory arena.
"""

import ctypes
import json
import mmap
import os
import sys

MAX_BUFFERS = 64
# Address space reserved on both sides of the arena: an index gone wrong lands there, not in somebody's memory.
REACH = 32 << 30
COUNTERS = (
    "mma",
    "exp",
    "threadgroup_barriers",
    "simdgroup_barriers",
    "collectives",
    "switches",
    "threadgroups",
    "threadgroup_bytes",
    "threadgroup_bytes_read",
    "threadgroup_bytes_written",
)


class Buffer(ctypes.Structure):
    _fields_ = [
        ("offset", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("origin", ctypes.c_uint64),
        ("writable", ctypes.c_uint32),
        ("initialised", ctypes.c_uint32),
    ]


class LaunchRequest(ctypes.Structure):
    _fields_ = [
        ("arena", ctypes.c_void_p),
        ("arena_size", ctypes.c_uint64),
        ("reach", ctypes.c_uint64),
        ("buffers", ctypes.POINTER(Buffer)),
        ("buffer_count", ctypes.c_uint32),
        ("grid", ctypes.c_uint32 * 3),
        ("threadgroup", ctypes.c_uint32 * 3),
        ("order", ctypes.c_uint32),
        ("checked", ctypes.c_uint32),
        ("flush_denormals", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
    ]


class Counters(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint64) for name in COUNTERS),
        ("device_bytes_read", ctypes.c_uint64 * MAX_BUFFERS),
        ("device_bytes_written", ctypes.c_uint64 * MAX_BUFFERS),
        ("device_bytes_unwritten", ctypes.c_uint64 * MAX_BUFFERS),
    ]


class Failure(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_int32),
        ("buffer", ctypes.c_int32),
        ("offset", ctypes.c_int64),
        ("threadgroup", ctypes.c_uint32 * 3),
        ("thread", ctypes.c_int32),
        ("line", ctypes.c_int32),
        ("pc", ctypes.c_uint64),
        ("name", ctypes.c_char * 64),
        ("file", ctypes.c_char * 192),
        ("message", ctypes.c_char * 512),
    ]


CONSTANT_TYPES: dict = {
    "bool": ctypes.c_bool,
    "int": ctypes.c_int32,
    "uint": ctypes.c_uint32,
    "float": ctypes.c_float,
    "short": ctypes.c_int16,
    "ushort": ctypes.c_uint16,
}


class Arena:
    """The shared memory, mapped in the middle of a reservation nothing else can use."""

    def __init__(self, fd):
        self.fd = fd
        self.size = 0
        libc = ctypes.CDLL(None, use_errno=True)
        self._mmap = libc.mmap
        self._mmap.restype = ctypes.c_void_p
        self._mmap.argtypes = [
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_long,
        ]
        no_reserve = getattr(mmap, "MAP_NORESERVE", 0x4000)
        self.reach = REACH
        while True:
            base = self._mmap(None, 2 * self.reach, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve, -1, 0)
            if base not in (None, ctypes.c_void_p(-1).value):
                break
            self.reach //= 2  # a limit on address space
        self.address = base + self.reach

    def grow(self, size):
        """Maps the first ``size`` bytes of the shared memory."""
        if size <= self.size:
            return
        fixed = 0x10
        got = self._mmap(self.address, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | fixed, self.fd, 0)
        if got != self.address:
            raise MemoryError(f"cannot map {size} bytes of shared memory")
        self.size = size


def failure_record(failure):
    return {
        "kind": failure.kind,
        "buffer": failure.buffer,
        "offset": failure.offset,
        "thread": failure.thread,
        "threadgroup": list(failure.threadgroup),
        "line": failure.line,
        "pc": failure.pc,
        "name": failure.name.decode(errors="replace"),
        "file": failure.file.decode(errors="replace"),
        "message": failure.message.decode(errors="replace"),
    }


class Server:
    def __init__(self, runtime_path, arena_fd):
        self.runtime = ctypes.CDLL(runtime_path, mode=ctypes.RTLD_GLOBAL)
        self.runtime.mlx_tx_launch.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_double]
        self.arena = Arena(arena_fd)
        self.libraries = {}

    def library(self, path):
        if path not in self.libraries:
            self.libraries[path] = ctypes.CDLL(path)
        return self.libraries[path]

    def launch(self, request):
        self.arena.grow(request["arena_size"])
        library = self.library(request["library"])
        for name, (kind, value) in request["constants"].items():
            constant = CONSTANT_TYPES[kind].in_dll(library, name)
            constant.value = value
        buffers = (Buffer * len(request["buffers"]))(*(Buffer(*row) for row in request["buffers"]))
        native = LaunchRequest(
            self.arena.address,
            request["used"],
            self.arena.reach // 2,
            buffers,
            len(buffers),
            (ctypes.c_uint32 * 3)(*request["grid"]),
            (ctypes.c_uint32 * 3)(*request["threadgroup"]),
            request["order"],
            request["checked"],
            request["flush_denormals"],
            request["seed"],
        )
        counters, failure = Counters(), Failure()
        entry = ctypes.cast(library.mlx_tx_kernel, ctypes.c_void_p)
        status = self.runtime.mlx_tx_launch(
            entry, ctypes.byref(native), ctypes.byref(counters), ctypes.byref(failure), request["time_limit"]
        )
        if status:
            return {"failure": failure_record(failure)}
        count = len(buffers)
        return {
            "counters": {name: getattr(counters, name) for name in COUNTERS},
            "read": counters.device_bytes_read[:count],
            "written": counters.device_bytes_written[:count],
            "unwritten": counters.device_bytes_unwritten[:count],
        }


def main():
    answers = os.dup(1)
    os.dup2(2, 1)  # whatever prints must not land among the answers
    server = Server(sys.argv[1], int(sys.argv[2]))
    server.runtime.mlx_tx_install_handlers(answers)
    for line in sys.stdin:
        try:
            answer = server.launch(json.loads(line))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        os.write(answers, (json.dumps(answer) + "\n").encode())


if __name__ == "__main__":
    main()
