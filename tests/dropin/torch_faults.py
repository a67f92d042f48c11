# Items of scripts/dropin: a collective that a rank never joins. Abort, a timeout or the watchdog ends it.
import time
from datetime import timedelta

import torch
import torch.distributed as dist

SIZE = 1 << 20


def abort(ctx):
    """All ranks but the last wait for it in a collective, and abort."""
    x = torch.ones(SIZE, device=ctx.device)
    dist.all_reduce(x)
    torch.cuda.synchronize()
    begin = time.monotonic()
    if ctx.rank < ctx.n - 1:
        dist.all_reduce(x, async_op=True)
        time.sleep(1)
    else:
        time.sleep(2)
    dist.distributed_c10d._abort_process_group()
    try:
        torch.cuda.synchronize()  # the kernel must have ended
    except RuntimeError as error:
        raise AssertionError(f"the device is broken after the abort: {error}") from error
    return f"over {time.monotonic() - begin - 1:.1f} s after the abort was called"


def blocking_wait(ctx):
    """With TORCH_NCCL_BLOCKING_WAIT=1 a wait longer than the timeout raises."""
    group = dist.new_group(timeout=timedelta(seconds=4))
    x = torch.ones(SIZE, device=ctx.device)
    dist.all_reduce(x, group=group)
    torch.cuda.synchronize()
    said = None
    if ctx.rank == ctx.n - 1:
        time.sleep(8)
    else:
        work = dist.all_reduce(x, group=group, async_op=True)  # without async_op this PyTorch does not wait
        try:
            work.wait()
        except RuntimeError as error:
            said = str(error)[:120]
        else:
            raise AssertionError("the wait ended without an error")
    # The group has lost a rank, so it cannot be destroyed properly.
    dist.distributed_c10d._abort_process_group(group)
    return said


def watchdog(ctx):
    """The watchdog is to end every rank that waits; scripts/dropin looks at how they end."""
    x = torch.ones(SIZE, device=ctx.device)
    dist.all_reduce(x)
    torch.cuda.synchronize()
    if ctx.rank == 0:
        dist.all_reduce(x)
        torch.cuda.synchronize()
    time.sleep(60)
    raise AssertionError("the watchdog did not end this rank")


ITEMS = {"abort": abort, "blocking wait": blocking_wait, "watchdog": watchdog}
