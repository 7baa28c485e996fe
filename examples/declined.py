"""A function that cannot be one kernel: how many rows it returns depends on the data."""

import torch


# inputs: scores: f32[1024], threshold=0.5
def keep_confident(scores: torch.Tensor, threshold: float = 0.5) -> torch.Tensor:
    confident = scores > threshold
    return scores[confident].sort(descending=True).values
