"""AdamW with warm-up, decay, clipping, and weight decay on kernels alone."""

from typing import Any

import flax
import optax

SCHEDULES = ("cosine", "linear", "constant")


def learning_rate(schedule: str, peak: float, warmup_steps: int, steps: int) -> optax.Schedule:
    """Linear warm-up to the peak, then decay to zero at the last step.

    A run shorter than twice its warm-up warms up for half of its steps.
    """
    warmup_steps = min(warmup_steps, steps // 2)
    rest = max(steps - warmup_steps, 1)
    decay = {
        "cosine": optax.cosine_decay_schedule(peak, rest),
        "linear": optax.linear_schedule(peak, 0.0, rest),
        "constant": optax.constant_schedule(peak),
    }[schedule]
    if not warmup_steps:
        return decay
    # The first step already moves: its rate is peak / warmup_steps.
    warmup = optax.linear_schedule(peak / warmup_steps, peak, max(warmup_steps - 1, 1))
    return optax.join_schedules([warmup, decay], [warmup_steps])


def decayed(params: Any) -> Any:
    """True for what weight decay shrinks: no bias, no LayerNorm, no embedding."""
    flat = flax.traverse_util.flatten_dict(params)
    return flax.traverse_util.unflatten_dict(
        {path: path[-1] == "kernel" and path[0] != "context_encoder" for path in flat}
    )


def make_optimizer(
    rate: optax.Schedule, weight_decay: float, clip_norm: float, b1: float, b2: float
) -> optax.GradientTransformation:
    """AdamW; `clip_norm` of 0 turns clipping off."""
    adamw = optax.adamw(rate, b1, b2, weight_decay=weight_decay, mask=decayed)
    return optax.chain(optax.clip_by_global_norm(clip_norm), adamw) if clip_norm else adamw
