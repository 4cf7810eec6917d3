# SPDX-License-Identifier: BSD-2-Clause
"""The second process of the tests: a target that executes the commands on its
standard input.

    target.py [native [PORT]]

It writes "NAME ADDRESS LENGTH" of its segment first, then one line for each command.
It uses mooncake.engine, or with "native" the package moonrail, with its memory at the
same address in each process and its control channel at PORT.
"""
import ctypes
import sys
import zlib

import moonrail
from mooncake.engine import TransferEngine

SIZE = 8 << 20
PLACE = 0x6F0000000000          # address of the memory of a native target


def answer(*words):
    print(*words, flush=True)


class Mooncake:
    """A target with the methods of Mooncake's module."""

    def __init__(self):
        self.engine = TransferEngine()
        if self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", ""):
            sys.exit("initialize failed")
        self.memory = (ctypes.c_ubyte * SIZE)()
        if self.engine.register_memory(ctypes.addressof(self.memory), SIZE):
            sys.exit("register_memory failed")
        self.name = "127.0.0.1:%d" % self.engine.get_rpc_port()

    def notes(self):
        return ["%s=%s" % (n.name, n.msg) for n in self.engine.get_notifies()]


class Native:
    """A target that uses the package moonrail."""

    def __init__(self, port="0"):
        mmap = ctypes.CDLL(None).mmap
        mmap.restype = ctypes.c_void_p
        mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                         ctypes.c_int, ctypes.c_long]
        address = mmap(PLACE, SIZE, 3, 0x22, -1, 0)     # read, write; private, anonymous
        self.memory = (ctypes.c_ubyte * SIZE).from_address(address)
        settings = {"MC_MIN_RPC_PORT": port, "MC_MAX_RPC_PORT": port}
        self.engine = moonrail.Engine(name="127.0.0.1",
                                      settings=settings if port != "0" else None)
        self.engine.register(self.memory)
        self.name = self.engine.name

    def notes(self):
        return ["%s=%s" % (n.name, n.data.hex())
                for n in self.engine.binary_notifications()]


def main():
    target = Native(*sys.argv[2:]) if sys.argv[1:] else Mooncake()
    memory = target.memory
    address = ctypes.addressof(memory)
    answer(target.name, address, SIZE)
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "fill":          # OFFSET LENGTH BYTE
            offset, length, byte = map(int, rest)
            ctypes.memset(address + offset, byte, length)
            answer("done")
        elif word == "show":        # OFFSET LENGTH
            offset, length = map(int, rest)
            answer(ctypes.string_at(address + offset, length).hex())
        elif word == "crc":         # OFFSET LENGTH
            offset, length = map(int, rest)
            answer(zlib.crc32(memoryview(memory)[offset:offset + length]))
        elif word == "notes":
            answer(*target.notes())
        else:
            sys.exit("unknown command: " + line)


if __name__ == "__main__":
    main()
