"""AdamW for everything, or Muon for the matrices inside the layers and AdamW for the rest.

Both take the learning rate as a device tensor, so a captured CUDA graph of the step sees its changes.
"""

import torch


def newton_schulz(g, steps: int = 5):
    """Nearest semi-orthogonal matrices of a stack [N, rows, columns], in bf16 (Muon's quintic iteration)."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        s = x @ x.mT
        x = a * x + (b * s + c * s @ s) @ x
    return (x.mT if tall else x).float()


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalized. Updates have the rms of AdamW's (0.2), so both share a learning rate."""

    def __init__(self, params, lr, momentum: float = 0.95, weight_decay: float = 0.1):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            by_shape = {}
            for p in group["params"]:
                if p.grad is not None:
                    by_shape.setdefault(tuple(p.shape), []).append(p)
            for shape, params in by_shape.items():
                self._step_shape(group, shape, params)

    def _step_shape(self, group, shape, params):
        grads = torch.stack([p.grad for p in params])
        moments = []
        for p in params:
            state = self.state[p]
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(p)
            moments.append(state["momentum"])
        torch._foreach_mul_(moments, group["momentum"])
        torch._foreach_add_(moments, [p.grad for p in params])
        update = newton_schulz(grads + group["momentum"] * torch.stack(moments))
        update = update * (0.2 * max(shape) ** 0.5) * group["lr"]
        torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_sub_(params, list(update.unbind(0)))


def make(model, kind: str, lr: float, weight_decay: float, device) -> list:
    """Optimizers whose groups carry `scale`: the group's rate relative to the schedule's."""
    inner, outer, vectors = [], [], []
    for name, p in model.named_parameters():
        if p.dim() < 2:
            vectors.append(p)
        elif ".layers." in name and kind == "muon":
            inner.append(p)
        else:
            outer.append(p)
    rate = lambda: torch.tensor(lr, device=device)
    cuda = torch.device(device).type == "cuda"
    groups = [
        {"params": outer, "weight_decay": weight_decay, "lr": rate()},
        {"params": vectors, "weight_decay": 0.0, "lr": rate()},
    ]
    options = {"fused": True, "capturable": True} if cuda else {"foreach": False}
    out = [torch.optim.AdamW(groups, lr=rate(), betas=(0.9, 0.95), **options)]
    if inner:
        out.append(Muon([{"params": inner, "lr": rate(), "weight_decay": weight_decay}], lr=rate()))
    return out


def set_rate(optimizers, lr: float) -> None:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"].fill_(lr)
