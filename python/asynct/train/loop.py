"""The training loop: budget by steps or seconds, resumable, one progress line, held-out losses."""

import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from . import optimizer as optim
from .dataset import document_numbers
from .network import TrainingNetwork


@dataclass
class Options:
    out: str
    steps: int | None = None  # budget: steps, or
    seconds: float | None = None  # wall clock of training, compilation included
    batch_tokens: int = 32768
    length: int = 512
    long_length: int = 2048  # longer windows, so that sums over many keys are seen in training:
    long_every: int = 8  # every so many steps (0: never), and
    long_share: float = 0.05  # only those in the last part of training
    lr: float = 3e-3
    schedule: str = "linear"  # or "cosine"
    final_lr: float = 0.02
    warmup: int = 200
    clip: float = 1.0
    optimizer: str = "adamw"
    weight_decay: float = 0.1
    gate_density: float = 0.25  # share of active gates in a layer above which gate_penalty acts
    gate_penalty: float = 0.0
    seed: int = 1
    save_every: float = 60.0  # seconds
    eval_every: int = 1000
    log_every: int = 50
    compile: bool = True
    cuda_graph: bool = True
    device: str = "cuda"


class Step:
    """One optimizer step at a fixed window length, as a CUDA graph where asked for."""

    def __init__(self, network, optimizers, options: Options, example):
        self.network, self.optimizers, self.options = network, optimizers, options
        self.parameters = list(network.model.parameters())
        self.graph = None
        if options.cuda_graph and options.device.startswith("cuda"):
            self._capture(example)

    def _run(self, ids, documents):
        loss = self.network.loss(ids, documents)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.options.clip)
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.detach(), norm

    def _zero(self):
        for p in self.parameters:
            p.grad = None

    def _capture(self, example):
        self.ids, self.documents = (t.clone() for t in example)
        # Warm-up steps run at rate 0, so that they compile and allocate but train nothing. Moments still move:
        # they see this very batch a few times, which is what the first real steps would have them do.
        rates = [[float(g["lr"]) for g in o.param_groups] for o in self.optimizers]
        optim.set_rate(self.optimizers, 0.0)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._zero()
                self._run(self.ids, self.documents)
        torch.cuda.current_stream().wait_stream(side)
        self._zero()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.result = self._run(self.ids, self.documents)
        for optimizer, lrs in zip(self.optimizers, rates):
            for group, lr in zip(optimizer.param_groups, lrs):
                group["lr"].fill_(lr)

    def __call__(self, ids, documents):
        if self.graph is None:
            self._zero()
            return self._run(ids, documents)
        self.ids.copy_(ids)
        self.documents.copy_(documents)
        self.graph.replay()
        return self.result


class Trainer:
    def __init__(self, model, sampler, held_out: dict, end_id: int, options: Options):
        self.model, self.sampler, self.held_out, self.end_id = model, sampler, held_out, end_id
        self.options = options
        self.out = Path(options.out)
        self.out.mkdir(parents=True, exist_ok=True)
        dtype = torch.bfloat16 if options.device.startswith("cuda") else torch.float32
        self.network = TrainingNetwork(model, dtype, options.compile, options.gate_density, options.gate_penalty)
        self.plain = TrainingNetwork(model, dtype, compile=False)
        self.optimizers = optim.make(model, options.optimizer, options.lr, options.weight_decay, options.device)
        self.step = self.tokens = 0
        self.elapsed = 0.0  # of earlier runs
        self.history = []  # {"step", "tokens", "seconds", "loss", "lr"}
        self.evaluations = []  # {"step", "tokens", source: loss}

    # --- progress ---

    def fraction(self) -> float:
        o = self.options
        by_steps = self.step / o.steps if o.steps else 0.0
        by_time = self.seconds() / o.seconds if o.seconds else 0.0
        return max(by_steps, by_time)

    def seconds(self) -> float:
        return self.elapsed + time.monotonic() - self.started

    def rate(self, fraction: float) -> float:
        o = self.options
        if self.step < o.warmup:
            return o.lr * (self.step + 1) / o.warmup
        fraction = min(fraction, 1.0)
        shape = 1 - fraction if o.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * fraction))
        return o.lr * (o.final_lr + (1 - o.final_lr) * shape)

    def window_length(self, fraction: float) -> int:
        o = self.options
        long = fraction >= 1.0 - o.long_share or (o.long_every > 0 and self.step % o.long_every == o.long_every - 1)
        return o.long_length if long else o.length

    # --- state ---

    def save(self) -> None:
        state = {
            "model": self.model.state_dict(),
            "optimizers": [o.state_dict() for o in self.optimizers],
            "step": self.step,
            "tokens": self.tokens,
            "seconds": self.seconds(),
            "history": self.history,
            "evaluations": self.evaluations,
            "options": asdict(self.options),
        }
        temporary = self.out / "state.pt.part"
        torch.save(state, temporary)
        temporary.replace(self.out / "state.pt")
        (self.out / "history.json").write_text(json.dumps({"train": self.history, "held_out": self.evaluations}))

    def resume(self) -> bool:
        path = self.out / "state.pt"
        if not path.exists():
            return False
        state = torch.load(path, map_location=self.options.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
        self.step, self.tokens, self.elapsed = state["step"], state["tokens"], state["seconds"]
        self.history, self.evaluations = state["history"], state["evaluations"]
        return True

    # --- run ---

    def train(self) -> None:
        o = self.options
        self.started = last_save = time.monotonic()
        runners = {}  # window length -> Step
        losses, mark = [], (self.seconds(), self.tokens)
        while (fraction := self.fraction()) < 1.0:
            length = self.window_length(fraction)
            batch = self.sampler.batch(self.step, max(1, o.batch_tokens // length), length)
            if length not in runners:
                runners[length] = Step(self.network, self.optimizers, o, batch)
            lr = self.rate(fraction)
            optim.set_rate(self.optimizers, lr)
            loss, norm = runners[length](*batch)
            losses.append(loss.clone())
            self.step += 1
            self.tokens += batch[1].numel()
            if self.step % o.log_every == 0:
                mark = self._log(losses, norm, lr, mark, length)
                losses = []
            if self.step % o.eval_every == 0:
                self.evaluate()
            if time.monotonic() - last_save > o.save_every:
                self.save()
                last_save = time.monotonic()
        self.evaluate()
        self.save()

    def _log(self, losses, norm, lr, mark, length):
        loss = torch.stack(losses).mean().item()
        if not math.isfinite(loss):
            raise RuntimeError(f"loss is {loss} at step {self.step}; the last saved state is {self.out / 'state.pt'}")
        seconds = self.seconds()
        rate = (self.tokens - mark[1]) / max(seconds - mark[0], 1e-9)
        self.history.append(
            {"step": self.step, "tokens": self.tokens, "seconds": round(seconds, 2), "loss": loss, "lr": lr}
        )
        if (self.step // self.options.log_every) % 5 == 0:
            print(
                f"step {self.step:6d}  {100 * self.fraction():5.1f} %  {seconds:6.1f} s  T {length}  loss {loss:.4f}  "
                f"|g| {float(norm):.2f}  lr {lr:.2e}  {rate / 1e3:.0f} k tokens/s",
                flush=True,
            )
        return seconds, self.tokens

    @torch.no_grad()
    def evaluate(self, length: int = 512, most: int = 64) -> dict:
        """Mean held-out loss of each source over at most `most` windows."""
        row = {"step": self.step, "tokens": self.tokens}
        for name, ids in self.held_out.items():
            count = min((len(ids) - 1) // length, most)
            if count < 1:
                continue
            data = torch.from_numpy(ids[: count * length + 1].astype("int64")).to(self.options.device)
            windows = torch.stack([data[i * length : i * length + length + 1] for i in range(count)])
            index = torch.arange(count * length, device=data.device).view(count, length)
            total = 0.0
            for i in range(0, count, 16):
                documents = document_numbers(windows[i : i + 16, :-1], index[i : i + 16], self.end_id)
                total += float(self.plain.loss(windows[i : i + 16], documents)) * len(documents)
            row[name] = total / count
        self.evaluations.append(row)
        print("held out  " + "  ".join(f"{k} {v:.3f}" for k, v in row.items() if k not in ("step", "tokens")), flush=True)
        return row
