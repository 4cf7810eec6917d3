# SPDX-License-Identifier: BSD-2-Clause
"""Addresses of Python objects, and registered memory."""
import ctypes

from . import _moonrail
from .errors import check


def address_of(obj, writable=False):
    """Returns (address, bytes) of the memory of an object.

    The object is a Memory, has the buffer protocol (bytearray, array, mmap, numpy),
    has data_ptr() and nbytes (torch), has __cuda_array_interface__ (cupy, numba), has
    __dlpack__, or is a pair (address, bytes). Its memory must be contiguous.
    """
    if isinstance(obj, Memory):
        return obj.address, obj.nbytes
    if isinstance(obj, tuple) and len(obj) == 2:
        return int(obj[0]), int(obj[1])
    if hasattr(obj, "data_ptr") and hasattr(obj, "nbytes"):
        if hasattr(obj, "is_contiguous") and not obj.is_contiguous():
            raise ValueError("memory: the tensor is not contiguous; call contiguous()")
        return int(obj.data_ptr()), int(obj.nbytes)
    interface = getattr(obj, "__cuda_array_interface__", None)
    if interface is not None:
        return _address_of_cuda(interface, writable)
    try:
        return _moonrail.buffer_address(obj, writable)
    except TypeError:
        if hasattr(obj, "__dlpack__"):
            return _address_of_dlpack(obj)
        raise TypeError(
            "memory: %s has neither the buffer protocol, data_ptr(), "
            "__cuda_array_interface__ nor __dlpack__" % type(obj).__name__) from None


def _address_of_cuda(interface, writable):
    address, readonly = interface["data"]
    if writable and readonly:
        raise ValueError("memory: the array is read-only")
    size = int(interface["typestr"][2:])
    expected = size
    for extent, stride in zip(reversed(interface["shape"]),
                              reversed(interface.get("strides") or ())):
        if stride != expected:
            raise ValueError("memory: the array is not contiguous")
        expected *= extent
    for extent in interface["shape"]:
        size *= extent
    return int(address), size


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


def _address_of_dlpack(obj):
    capsule = obj.__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype = ctypes.c_void_p
    pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    tensor = _DLTensor.from_address(pointer(capsule, b"dltensor"))
    count = 1
    for i in reversed(range(tensor.ndim)):
        if tensor.strides and tensor.shape[i] > 1 and tensor.strides[i] != count:
            raise ValueError("memory: the tensor is not contiguous")
        count *= tensor.shape[i]
    size = count * ((tensor.bits * tensor.lanes + 7) // 8)
    return (tensor.data or 0) + tensor.byte_offset, size


class Memory:
    """Registered memory. Engine.register and Engine.alloc return it.

    It keeps the registered object alive, and can be used in a with statement, which
    unregisters it at its end.
    """

    def __init__(self, engine, address, nbytes, owner=None, allocated=False,
                 location="*", flags=0, label=None):
        self.address = address
        self.nbytes = nbytes
        self.location = location
        self.label = label
        self._flags = flags
        self._engine = engine
        self._owner = owner
        self._allocated = allocated
        self._open = True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __len__(self):
        return self.nbytes

    def __repr__(self):
        return "Memory(address=%#x, nbytes=%d, location=%r)" % (
            self.address, self.nbytes, self.location)

    def __getitem__(self, part):
        """Returns (address, bytes) of a slice, for transfers."""
        if not isinstance(part, slice):
            raise TypeError("memory: a slice is required, such as memory[0:4096]")
        begin, end, step = part.indices(self.nbytes)
        if step != 1 or end <= begin:
            raise ValueError("memory: the slice is empty or has a step")
        return self.address + begin, end - begin

    def view(self):
        """Returns a memoryview of host memory that Engine.alloc has allocated, or of
        the registered object. It must not be used after close()."""
        if self._owner is not None:
            return memoryview(self._owner).cast("B")
        return memoryview((ctypes.c_ubyte * self.nbytes).from_address(
            self.address)).cast("B")

    def close(self):
        """Unregisters the memory. When this call has returned, no peer can access the memory,
        unless it was registered inside other memory, which stays accessible."""
        if not self._open:
            return
        handle = self._engine._handle
        check(handle.free(self.address) if self._allocated
              else handle.unregister(*self._entry()))
        self._open = False
        self._owner = None
        self._engine._memory.pop(id(self), None)

    def _entry(self):
        """Returns the arguments of register and unregister."""
        return self.address, self.nbytes, self.location, self._flags, self.label
