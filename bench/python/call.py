#!/usr/bin/env python3
"""Measures what norm(x=x, weight=w, y=y) of the installed package costs over kiln_launch(), and what `import kiln` costs.

    KILN_CUDA_LIBRARY=build/debug/tests/fake_cuda/lib/libcuda.so.1 FAKE_CUDA="footprint 4096" .venv/bin/python bench/python/call.py

Calls and launches take turns, in one process, with one library, on the fake driver, whose launches run nothing then. Needs cc."""
import ctypes
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

FOLDER = pathlib.Path(__file__).resolve().parent
ROUNDS, CALLS, ROWS, COLS = 600, 300, 8, 4096


def build(package: pathlib.Path, folder: str) -> ctypes.CDLL:
    library = os.path.join(folder, "call.so")
    root = FOLDER.parents[1]
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"-I{root}/include", "-o", library, FOLDER / "call.c", package / "libkiln_kernels.so", f"-Wl,-rpath,{package}"], check=True)
    return ctypes.CDLL(library)


def import_ms() -> list:
    program = "import time; begin = time.perf_counter(); import kiln; print((time.perf_counter() - begin) * 1e3)"
    return sorted(float(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout) for _ in range(21))


def main() -> None:
    imports = import_ms()
    import kiln

    driver = ctypes.CDLL(os.environ["KILN_CUDA_LIBRARY"])
    context, stream = ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuInit(0) == 0 and driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxPushCurrent_v2(context) == 0 and driver.cuStreamCreate(ctypes.byref(stream), 1) == 0

    def allocated(count: int) -> int:
        address = ctypes.c_uint64()
        assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4 * count)) == 0
        return address.value

    with tempfile.TemporaryDirectory() as folder:
        c = build(pathlib.Path(kiln.__file__).parent, folder)
        new_capsule = ctypes.pythonapi.PyCapsule_New
        new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        name = b"dlpack_exchange_api"

        class Tensor:
            __dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(ctypes.c_char.in_dll(c, "exchange")), name, None)

        x, w, y = Tensor(), Tensor(), Tensor()
        addresses = [allocated(ROWS * COLS), allocated(COLS), allocated(ROWS * COLS)]
        for index, (tensor, address) in enumerate(zip((x, w, y), addresses)):
            c.know(index, ctypes.c_void_p(id(tensor)), ctypes.c_void_p(address), 1 if index == 1 else 2, ctypes.c_int64(ROWS), ctypes.c_int64(COLS))
        assert c.begin(*map(ctypes.c_void_p, addresses), ctypes.c_int64(ROWS), ctypes.c_int64(COLS), stream) == 0
        for each in (c.launches, c.bound_launches):
            each.restype = ctypes.c_double
        kiln.configure(overlay="", on_miss="nearest")
        norm = kiln.op("rms_norm")

        def called(function, **given) -> float:
            begin = time.perf_counter_ns()
            for _ in range(CALLS):
                function(**given)
            return (time.perf_counter_ns() - begin) / CALLS

        def empty(*, x, weight, y) -> None:
            pass

        given = {"x": x, "weight": w, "y": y}
        ways = {
            "kiln_launch": lambda: c.launches(CALLS),
            "kiln_bind and kiln_launch": lambda: c.bound_launches(CALLS),
            "norm(x=x, weight=w, y=y)": lambda: called(norm, **given),
            "an empty Python function": lambda: called(empty, **given),
        }
        for way in ways.values():
            assert way() > 0
        times = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, way in ways.items():
                times[name].append(way())
    print("way | least, ns | quarter, ns | median, ns")
    for name, all_of in times.items():
        quarter = statistics.quantiles(all_of, n=4)[0]
        print(f"{name} | {min(all_of):.0f} | {quarter:.0f} | {statistics.median(all_of):.0f}")
    over = [call - launch for call, launch in zip(times["norm(x=x, weight=w, y=y)"], times["kiln_launch"])]
    print(f"over kiln_launch: least {min(times['norm(x=x, weight=w, y=y)']) - min(times['kiln_launch']):.0f} ns, median of rounds {statistics.median(over):.0f} ns")
    print(f"import kiln: least {imports[0]:.1f} ms, median {imports[10]:.1f} ms")


if __name__ == "__main__":
    main()
