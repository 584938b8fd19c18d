"""Muon: steps along the nearest orthogonal matrix of the momentum, for the matrices of a model's layers."""

import torch
from torch import Tensor

# Newton-Schulz of the fifth degree; five steps bring all singular values close to 1.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5


def orthogonal(matrices: Tensor, dtype: torch.dtype) -> Tensor:
    """matrices [count, rows, columns] -> U V^T of each U S V^T, S within about 0.3 of 1 where it is not tiny."""
    a, b, c = COEFFICIENTS
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.transpose(1, 2) if tall else matrices
    x = (x / (x.square().sum((1, 2), keepdim=True).sqrt() + 1e-12)).to(dtype)
    for _ in range(STEPS):
        gram = x @ x.transpose(1, 2)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.transpose(1, 2) if tall else x


class Muon(torch.optim.Optimizer):
    """All matrices of one shape are one batch. The root mean square of a step's elements is 0.2 times the
    rate, about AdamW's, so one rate fits both."""

    def __init__(self, matrices: list[Tensor], rate: float, momentum: float = 0.95, weight_decay: float = 0.1):
        shapes: dict[tuple, list[Tensor]] = {}
        for matrix in matrices:
            shapes.setdefault(tuple(matrix.shape), []).append(matrix)
        super().__init__([{"params": group} for group in shapes.values()],
                         {"lr": rate, "momentum": momentum, "weight_decay": weight_decay})
        self._momenta = [torch.zeros(len(group), *shape, device=group[0].device)
                         for shape, group in shapes.items()]
        self._dtype = torch.bfloat16 if matrices[0].is_cuda else torch.float32

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for group, momentum in zip(self.param_groups, self._momenta):
            gradients = torch.stack([p.grad for p in group["params"]])
            momentum.lerp_(gradients, 1 - group["momentum"])
            step = orthogonal(gradients.lerp(momentum, group["momentum"]), self._dtype).float().contiguous()
            size = group["lr"] * 0.2 * max(step.shape[1:]) ** 0.5
            torch._foreach_mul_(group["params"], 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(group["params"], list(step.unbind(0)), alpha=-size)
