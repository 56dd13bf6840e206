"""What the NVIDIA driver says of a device that the runtime does not: how much of its memory is free."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any, Final

LIBRARY: Final = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"


def free_bytes(index: int, load: Callable[[str], Any] = ctypes.CDLL) -> int | None:
    """Free bytes of a device, numbered as the process sees them; None where the driver is not there or refuses.

    The device's own context is used, which the runtime has made and shares.
    """
    try:
        driver = load(LIBRARY)
    except OSError:
        return None
    device, context, old = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), index):
        return None
    if driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device):
        return None
    try:
        if driver.cuCtxPushCurrent_v2(context):
            return None
        failed = driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        driver.cuCtxPopCurrent_v2(ctypes.byref(old))
    finally:
        driver.cuDevicePrimaryCtxRelease_v2(device)
    return None if failed else free.value
