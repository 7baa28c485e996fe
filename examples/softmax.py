"""Softmax over the last dimension, with a temperature."""

import torch


# inputs: logits: bf16[4096, 16384], temperature=0.7
def tempered_softmax(logits: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    return torch.softmax(logits / temperature, dim=-1)
