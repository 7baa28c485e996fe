"""Root-mean-square normalisation, as in Llama (Zhang & Sennrich 2019, https://arxiv.org/abs/1910.07467)."""

import torch


# inputs: x: bf16[8192, 4096], weight: bf16[4096], eps=1e-6
def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Normalise the last dimension of `x` by its root mean square and scale it by `weight`."""
    variance = x.float().pow(2).mean(-1, keepdim=True)
    return weight * (x.float() * torch.rsqrt(variance + eps)).to(x.dtype)
