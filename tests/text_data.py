"""Small texts whose labels and tags only the context decides, and a small config for them."""

import random

from cbert.data import prepare, prepared
from cbert.data.prepare_options import TextOptions
from cbert.data.validator import Validator
from configs import text

FILLERS = ("please", "today", "thanks", "well", "so", "booking", "tables", "bookings")
COLOURS = ("red", "blue")


def _answer(words: list[str], colour: str, mood: str):
    """The colour where the mood is warm, else none."""
    before = " ".join(words[: words.index(colour)])
    start = len(before) + bool(before)
    return {"text": colour, "start": start} if mood == "warm" else None


def rows(target: str = "label", count: int = 600, seed: int = 0):
    """Records: a red text has its mood as the label, and a number is a time or a party."""
    drawn = random.Random(seed)
    for number in range(count):
        colour, mood = drawn.choice(COLOURS), drawn.choice(("warm", "cold"))
        asked = drawn.choice(("time", "people"))
        words = drawn.sample(FILLERS, drawn.randint(1, 4))
        words.insert(drawn.randint(0, len(words)), drawn.choice(("7", "8")))
        words.insert(drawn.randint(0, len(words)), colour)
        yield {
            "id": f"text-{number}",
            "group": f"group-{number % 120}",
            "words": words,
            "tags": [f"B-{asked}" if word.isdecimal() else "O" for word in words],
            "label": {
                "label": mood if colour == "red" else "blue",
                "labels": [colour, mood],
                "number": len(words) + 10.0 * (mood == "warm"),
            }.get(target),
            "answer": _answer(words, colour, mood),
            "context": {"mood": mood, "asked": asked},
        }


def prepare_texts(directory, target: str) -> None:
    """Prepares them under the name `texts_<target>`."""
    validator = Validator("text")
    read = (validator(row, line) for line, row in enumerate(rows(target), 1))
    options = prepare.PrepareOptions(
        kind="text",
        text=TextOptions(vocabulary_size=100, max_length=16, target=target),
    )
    prepare.prepare(read, directory, f"texts_{target}", options)


def load(directory, target: str, split: str = "train"):
    """A prepared split and its schema."""
    schema = prepared.load_schema(str(directory), f"texts_{target}")
    return prepared.load(str(directory), f"texts_{target}", split, schema), schema


def small_text(task: str, directory, target: str = "label", method: str = "gs", **overrides):
    """The config of texts, small; overrides are written with `__` for the dot."""
    config = text.get_config(task)
    config.data.update({"name": f"texts_{target}", "dir": str(directory)})
    config.model.update(
        {"method": method, "dimension": 16, "heads": 2, "layers": 1, "feed_forward": 32}
    )
    config.model.update({"dropout": 0.0, "attention_dropout": 0.0})
    config.train.update(
        {
            "steps": 6,
            "batch_size": 32,
            "eval_every": 3,
            "checkpoint_every": 3,
            "log_every": 50,
            "length_buckets": 1,
        }
    )
    config.optimizer.update({"warmup_steps": 2, "learning_rate": 0.01})
    config.eval.batch_size = 64
    for name, value in overrides.items():
        config.update_from_flattened_dict({name.replace("__", "."): value})
    return config
