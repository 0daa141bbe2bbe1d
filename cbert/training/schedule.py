"""The learning rate as a function of the step."""

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
