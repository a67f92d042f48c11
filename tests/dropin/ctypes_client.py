# Item of scripts/dropin: the library through ctypes, with the calls that inference servers make.
import ctypes

import torch

from dropin.expectation import expect

FLOAT, SUM = 7, 0


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


class Client:
    """Checks every call by its result code, and shows the library's own text."""

    def __init__(self):
        self.library = ctypes.CDLL("libnccl.so.2")
        self.library.ncclGetErrorString.restype = ctypes.c_char_p
        self.library.ncclGetLastError.restype = ctypes.c_char_p

    def __getattr__(self, name):
        function = getattr(self.library, name)

        def call(*arguments):
            code = function(*arguments)
            if code:
                why = self.library.ncclGetLastError(None).decode() or self.library.ncclGetErrorString(code).decode()
                raise RuntimeError(f"{name}: {why}")
        return call


def pointer(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


def pynccl(ctx):
    nccl, n, rank = Client(), ctx.n, ctx.rank
    version = ctypes.c_int()
    nccl.ncclGetVersion(ctypes.byref(version))
    unique = UniqueId()
    if rank == 0:
        nccl.ncclGetUniqueId(ctypes.byref(unique))
        ctx.share("ctypes id", bytes(unique))
    unique = UniqueId.from_buffer_copy(ctx.share("ctypes id"))
    comm = ctypes.c_void_p()
    nccl.ncclCommInitRank(ctypes.byref(comm), n, unique, rank)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        stream = ctypes.c_void_p(side.cuda_stream)
        count = 5000
        x, y = torch.full((count,), float(rank), device=ctx.device), torch.zeros(count, device=ctx.device)
        size = ctypes.c_size_t(count)
        total = torch.full((count,), n * (n - 1) / 2)
        nccl.ncclAllReduce(pointer(x), pointer(y), size, FLOAT, SUM, comm, stream)
        side.synchronize()
        expect("ncclAllReduce", y, total)
        nccl.ncclReduce(pointer(x), pointer(y), size, FLOAT, SUM, 0, comm, stream)
        nccl.ncclBroadcast(pointer(y), pointer(y), size, FLOAT, 0, comm, stream)
        side.synchronize()
        expect("ncclReduce and ncclBroadcast", y, total)
        every = torch.zeros(n * count, device=ctx.device)
        nccl.ncclAllGather(pointer(x), pointer(every), size, FLOAT, comm, stream)
        nccl.ncclReduceScatter(pointer(every), pointer(y), size, FLOAT, SUM, comm, stream)
        side.synchronize()
        expect("ncclAllGather", every.view(n, -1).mean(1), torch.arange(n).float())
        expect("ncclReduceScatter", y, torch.full((count,), float(n * rank)))
        nccl.ncclGroupStart()
        nccl.ncclSend(pointer(x), size, FLOAT, (rank + 1) % n, comm, stream)
        nccl.ncclRecv(pointer(y), size, FLOAT, (rank - 1) % n, comm, stream)
        nccl.ncclGroupEnd()
        side.synchronize()
        expect("ncclSend and ncclRecv", y, torch.full((count,), float((rank - 1) % n)))
        memory, window = ctypes.c_void_p(), ctypes.c_void_p()
        nccl.ncclMemAlloc(ctypes.byref(memory), ctypes.c_size_t(1 << 21))
        nccl.ncclCommWindowRegister(comm, memory, ctypes.c_size_t(1 << 21), ctypes.byref(window), 1)
        nccl.ncclAllReduce(memory, memory, size, FLOAT, SUM, comm, stream)
        side.synchronize()
        try:  # nothing may crash on the device API
            space = (ctypes.c_byte * 4096)()
            nccl.ncclDevCommCreate(comm, space, space)
            device_api = "works"
        except RuntimeError as error:
            device_api = str(error)
        nccl.ncclCommWindowDeregister(comm, window)
        nccl.ncclMemFree(memory)
    nccl.ncclCommDestroy(comm)
    return f"version {version.value}; {device_api}"


ITEMS = {"ctypes, as pynccl": pynccl}
