# SPDX-License-Identifier: BSD-2-Clause
"""The other process of the tests: a target that obeys lines on its standard input.

It writes "NAME ADDRESS LENGTH" of its segment first, then one line for each command.
"""
import ctypes
import sys
import zlib

from mooncake.engine import TransferEngine

SIZE = 8 << 20


def answer(*words):
    print(*words, flush=True)


def main():
    engine = TransferEngine()
    if engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", ""):
        sys.exit("initialize failed")
    memory = (ctypes.c_ubyte * SIZE)()
    address = ctypes.addressof(memory)
    if engine.register_memory(address, SIZE):
        sys.exit("register_memory failed")
    answer("127.0.0.1:%d" % engine.get_rpc_port(), address, SIZE)
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "fill":          # OFFSET LENGTH BYTE
            offset, length, byte = map(int, rest)
            ctypes.memset(address + offset, byte, length)
            answer("done")
        elif word == "show":        # OFFSET LENGTH
            offset, length = map(int, rest)
            answer(engine.read_bytes_from_buffer(address + offset, length).hex())
        elif word == "crc":         # OFFSET LENGTH
            offset, length = map(int, rest)
            answer(zlib.crc32(memoryview(memory)[offset:offset + length]))
        elif word == "notes":
            answer(*("%s=%s" % (n.name, n.msg) for n in engine.get_notifies()))
        else:
            sys.exit("unknown command: " + line)


if __name__ == "__main__":
    main()
