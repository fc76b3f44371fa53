"""What each row of a peer ends with, so that it says by itself what was measured: the build whose run it belongs to and the peers' versions."""
import ctypes
import importlib.metadata
import json
import os
import re
import sys

# By the module that a script imports: the name in a row, and the package that has the version.
PACKAGES = {"torch": ("torch", "torch"), "triton": ("triton", "triton"), "flash_attn.cute": ("flash-attn-4", "flash-attn-4"),
            "fa3_fwd_interface": ("fa3-fwd", "fa3-fwd"), "flashinfer": ("flashinfer", "flashinfer-python"),
            "liger_kernel": ("liger", "liger-kernel"), "quack": ("quack", "quack-kernels")}


def version_of(module, package):
    """As its package has it, which is finer than what some modules say of themselves."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return str(getattr(sys.modules[module], "__version__", "unknown"))


def dotted(number):
    """130201 -> '13.2.1'"""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def cublaslt():
    """The version of the library that this process has loaded; nothing where it has none."""
    with open("/proc/self/maps") as maps:
        loaded = re.search(r"/\S*libcublasLt\.so\S*", maps.read())
    if not loaded:
        return {}
    version = ctypes.CDLL(loaded[0]).cublasLtGetVersion
    version.restype = ctypes.c_size_t
    return {"cublaslt": dotted(version())}


def libraries_of(torch):
    """The versions of the libraries behind torch; NCCL's where the ranks have met."""
    versions = cublaslt()
    if torch.backends.cudnn.is_available():
        versions["cudnn"] = str(torch.backends.cudnn.version())
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        versions["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return versions


def versions():
    """The peers that this process has imported, by name."""
    found = {name: version_of(module, package) for module, (name, package) in PACKAGES.items() if module in sys.modules}
    return found | (libraries_of(sys.modules["torch"]) if "torch" in found else {})


def emit(**row):
    """bench/run names the build."""
    print(json.dumps({"build": os.environ.get("KILN_BENCH_BUILD", "unknown"), "versions": versions()} | row), flush=True)
