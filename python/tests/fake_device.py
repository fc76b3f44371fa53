"""Tensors in the memory of tests/fake_cuda's driver, which is host memory, as each protocol gives them."""
from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, PYFUNCTYPE, Structure, c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p, py_object

_driver = None
_stream = None


def driver() -> ctypes.CDLL:
    global _driver
    if _driver is None:
        _driver = ctypes.CDLL(os.environ["KILN_CUDA_LIBRARY"])
        _checked(_driver.cuInit(0))
    return _driver


def _checked(code: int) -> None:
    assert code == 0, f"the fake driver gave {code}"


def make_current(device: int = 0) -> None:
    context = c_void_p()
    _checked(driver().cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    _checked(driver().cuCtxPushCurrent_v2(context))


def stream() -> int:
    """One stream of device 0, for all tests."""
    global _stream
    if _stream is None:
        make_current()
        _stream = c_void_p()
        _checked(driver().cuStreamCreate(ctypes.byref(_stream), 1))
    return _stream.value


def synchronise() -> None:
    _checked(driver().cuStreamSynchronize(c_void_p(stream())))


def query(question: str) -> int:
    driver().fake_cuda_query.restype = c_int64
    return driver().fake_cuda_query(question.encode())


def control(command: str) -> None:
    assert driver().fake_cuda_control(command.encode()) == 0


class Version(Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32)]


class DLTensor(Structure):
    _fields_ = [
        ("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32), ("code", c_uint8), ("bits", c_uint8),
        ("lanes", c_uint16), ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)), ("byte_offset", c_uint64),
    ]


class Managed(Structure):
    pass


class ManagedVersioned(Structure):
    pass


_Deleter = PYFUNCTYPE(None, c_void_p)
Managed._fields_ = [("dl_tensor", DLTensor), ("manager_ctx", c_void_p), ("deleter", _Deleter)]
ManagedVersioned._fields_ = [("version", Version), ("manager_ctx", c_void_p), ("deleter", _Deleter), ("flags", c_uint64), ("dl_tensor", DLTensor)]

TYPES = {"f32": (2, 32), "bf16": (4, 16), "f16": (2, 16), "i32": (0, 32), "i64": (0, 64), "c64": (5, 64)}
HOST, CUDA = 1, 2


class Tensor:
    """Memory with a shape; `values` reads and writes f32 and i32."""

    def __init__(self, shape, dtype="f32", strides=None, values=None, device_type=CUDA, device=0, address=None, read_only=False):
        self.shape, self.dtype, self.device_type, self.device, self.read_only = tuple(shape), dtype, device_type, device, read_only
        self.strides = tuple(strides) if strides is not None else _dense(self.shape)
        self.count = 1 + sum((size - 1) * abs(stride) for size, stride in zip(self.shape, self.strides)) if 0 not in self.shape else 0
        self.address = _allocate(max(self.count, 1) * TYPES[dtype][1] // 8) if address is None else address
        if values is not None:
            self.memory()[:] = values

    def memory(self):
        kind = {"f32": ctypes.c_float, "i32": c_int32}[self.dtype]
        return (kind * self.count).from_address(self.address)

    @property
    def values(self) -> list:
        synchronise()
        return list(self.memory())

    def fill(self, tensor: DLTensor) -> None:
        self._sizes = (c_int64 * max(len(self.shape), 1))(*self.shape)
        self._steps = (c_int64 * max(len(self.shape), 1))(*self.strides)
        tensor.data, tensor.device_type, tensor.device_id, tensor.ndim = self.address, self.device_type, self.device, len(self.shape)
        tensor.code, tensor.bits = TYPES[self.dtype]
        tensor.lanes, tensor.byte_offset = 1, 0
        tensor.shape, tensor.strides = self._sizes, self._steps


def _dense(shape) -> tuple:
    strides, step = [], 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= size
    return tuple(strides)


def _allocate(count: int) -> int:
    pointer = c_uint64()
    _checked(driver().cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(count)))
    return pointer.value


# A capsule keeps the address of its name alone.
EXCHANGE, VERSIONED, PLAIN = b"dlpack_exchange_api", b"dltensor_versioned", b"dltensor"
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = py_object, [c_void_p, c_char_p, c_void_p]


class Dlpack(Tensor):
    """By __dlpack__, with or without a version."""

    versioned = True
    given_back = 0
    asked = None

    def __dlpack_device__(self):
        return self.device_type, self.device

    def __dlpack__(self, **asked):
        self.asked = asked
        if not self.versioned and "max_version" in asked:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        self.managed = ManagedVersioned() if self.versioned else Managed()
        self.fill(self.managed.dl_tensor)
        self.managed.deleter = self._deleter = _Deleter(self._take_back)
        if self.versioned:
            self.managed.version.major, self.managed.version.minor = 1, 1
            self.managed.flags = int(self.read_only)
        return _new_capsule(ctypes.addressof(self.managed), VERSIONED if self.versioned else PLAIN, None)

    def _take_back(self, _):
        self.given_back += 1


class OldDlpack(Dlpack):
    versioned = False


class CudaArray(Tensor):
    """By __cuda_array_interface__."""

    told_stream = None

    @property
    def __cuda_array_interface__(self):
        size = TYPES[self.dtype][1] // 8
        told = {
            "shape": self.shape, "typestr": {"f32": "<f4", "i32": "<i4", "f16": "<f2", "c64": "<c8"}[self.dtype],
            "data": (self.address, self.read_only), "version": 3, "strides": tuple(size * each for each in self.strides),
        }
        return told if self.told_stream is None else {**told, "stream": self.told_stream}


class _Exchange(Structure):
    _fields_ = [("version", Version), ("previous", c_void_p), ("allocator", c_void_p), ("managed_from", c_void_p), ("to", c_void_p),
                ("tensor_from", c_void_p), ("current_stream", c_void_p)]


@PYFUNCTYPE(c_int, py_object, POINTER(DLTensor))
def _tensor_from(tensor, out):
    tensor.fill(out.contents)
    return 0


@PYFUNCTYPE(c_int, py_object, POINTER(POINTER(ManagedVersioned)))
def _managed_from(tensor, out):
    Dlpack.__dlpack__(tensor)
    out[0] = ctypes.pointer(tensor.managed)
    return 0


@PYFUNCTYPE(c_int, c_int32, c_int32, POINTER(c_void_p))
def _current_stream(device_type, device, out):
    Exchanged.streams_asked += 1
    out[0] = stream()
    return 0


def _exchange(tensor_from, managed_from, major=1, previous=None) -> _Exchange:
    return _Exchange(Version(major, 3), previous, None, ctypes.cast(managed_from, c_void_p), None,
                     ctypes.cast(tensor_from, c_void_p) if tensor_from else None, ctypes.cast(_current_stream, c_void_p))


_unowned, _owned = _exchange(_tensor_from, _managed_from), _exchange(None, _managed_from)
_newer = _exchange(None, _managed_from, 2, ctypes.addressof(_unowned))


class Exchanged(Dlpack):
    """By DLPack's C exchange, which tells the current stream."""

    streams_asked = 0
    __dlpack_c_exchange_api__ = _new_capsule(ctypes.addressof(_unowned), EXCHANGE, None)


class ExchangedOwned(Dlpack):
    """The same where the library gives tensors with an owner alone."""

    __dlpack_c_exchange_api__ = _new_capsule(ctypes.addressof(_owned), EXCHANGE, None)


class ExchangedNewer(Dlpack):
    """The same of a library that speaks DLPack 2 and 1."""

    __dlpack_c_exchange_api__ = _new_capsule(ctypes.addressof(_newer), EXCHANGE, None)
