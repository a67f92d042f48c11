# Comparisons for the items of scripts/dropin, and the exception for a missing requirement.
import torch


class Skip(Exception):
    """Raised by an item that misses a requirement."""


def expect(what, got, want, tolerance=1e-4):
    want = torch.as_tensor(want, device=got.device)
    if got.shape != want.shape:
        raise AssertionError(f"{what}: shape {tuple(got.shape)}, not {tuple(want.shape)}")
    got, want = got.detach().double(), want.detach().double()
    worst = ((got - want).abs() / want.abs().clamp(min=1)).max().item() if got.numel() else 0.0
    if not worst <= tolerance:  # a NaN is wrong too
        at = int(((got - want).abs()).argmax())
        raise AssertionError(f"{what}: element {at} is {got.flatten()[at].item()}, not {want.flatten()[at].item()}")
    return worst
