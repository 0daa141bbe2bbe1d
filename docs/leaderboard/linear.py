"""Answers the queries of sgd_acts or sgd_slots with a linear model of scikit-learn.

    python -m experiments.score --task=sgd_acts --queries=queries.parquet
    python docs/leaderboard/linear.py sgd.jsonl.gz queries.parquet context.parquet
    python docs/leaderboard/linear.py sgd.jsonl.gz queries.parquet words.parquet --no_context
    python -m experiments.score --task=sgd_acts --table=context.parquet --entry="linear"

It is an entry of the leaderboard that shares no code with this project, and what a transformer
has to beat. A multinomial logistic regression reads the words and pairs of words of a turn, or
a word, its neighbours and its ends, and beside them the context. The strength of its penalty is
the one of the lowest cross-entropy on the validation split.
"""

import argparse
import gzip
import itertools
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from sklearn.feature_extraction import FeatureHasher
from sklearn.linear_model import LogisticRegression

TRAINING = 24_000  # Turns to fit with, evenly spaced.
HELD_OUT = 3_000  # Turns to choose the penalty with, evenly spaced.
INVERSE_PENALTIES = (1.0, 10.0)
COLUMNS = 2**16  # Names of inputs are hashed to so many.
SMALLEST = 1e-12  # Where the probability of a label is rounded to 0.


def main() -> None:
    """Fits the model and writes the table that `experiments.score` reads."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("records", "queries", "table"):
        parser.add_argument(name)
    parser.add_argument("--no_context", action="store_true")
    arguments = parser.parse_args()
    queries = pyarrow.parquet.read_table(arguments.queries).to_pylist()
    kind = "tags" if "tags" in queries[0] else "label"
    splits: dict[str, list[Any]] = {"train": [], "validation": [], "test": []}
    with gzip.open(arguments.records, "rt", encoding="utf-8") as file:
        for record in map(json.loads, file):
            if arguments.no_context:
                record["context"] = {}
            splits[record["split"]].append(record)
    model = fit(evenly(splits["train"], TRAINING), evenly(splits["validation"], HELD_OUT), kind)
    records = {record["id"]: record for record in splits["test"]}
    rows = [answer(model, records[query["id"]], query, kind) for query in queries]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), arguments.table)


def evenly(rows: list[Any], count: int) -> list[Any]:
    """About so many rows, at equal distances."""
    return rows[:: max(len(rows) // count, 1)]


def fit(training: list[Any], held_out: list[Any], kind: str) -> tuple[Any, Any]:
    """The hashing of inputs, and the classifier of the best penalty."""
    vectorizer = FeatureHasher(COLUMNS, dtype=np.float32)
    inputs = vectorizer.transform(row for record in training for row in rows_of(record, kind))
    labels = [label for record in training for label in labels_of(record, kind)]
    others = vectorizer.transform(row for record in held_out for row in rows_of(record, kind))
    truth = [label for record in held_out for label in labels_of(record, kind)]
    best, lowest = None, float("inf")
    for strength in INVERSE_PENALTIES:
        classifier = LogisticRegression(C=strength, max_iter=100).fit(inputs, labels)
        loss = -np.mean(log_probabilities(classifier, classifier.predict_proba(others), truth))
        print(f"C {strength}: validation cross-entropy {loss:.4f}", flush=True)
        if loss < lowest:
            best, lowest = classifier, loss
    return vectorizer, best


def rows_of(record: Any, kind: str) -> Iterator[dict[str, float]]:
    """What a turn's label, or the tag of each of its words, is predicted from."""
    context = dict(context_of(record["context"]))
    words = [word.lower() for word in record["words"]]
    if kind == "label":
        pairs = [" ".join(pair) for pair in itertools.pairwise(words)]
        yield context | dict.fromkeys([*words, *pairs], 1.0)
        return
    padded = ["<s>", "<s>", *words, "</s>", "</s>"]
    for place, word in enumerate(words):
        near = {f"{step}={padded[place + 2 + step]}": 1.0 for step in (-2, -1, 0, 1, 2)}
        ends = {f"ends={word[-3:]}": 1.0, f"begins={word[:3]}": 1.0}
        both = {f"{name}&{word}": 1.0 for name in context}
        digits = {"digits": float(any(letter.isdigit() for letter in word))}
        yield context | near | ends | both | digits


def context_of(context: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """The values of the features, as names."""
    for name, value in context.items():
        for one in value if isinstance(value, list) else [value]:
            yield f"{name}={one}", 1.0


def labels_of(record: Any, kind: str) -> list[str]:
    return record["tags"] if kind == "tags" else [record["label"]]


def log_probabilities(classifier: Any, probabilities: Any, truth: list[str]) -> np.ndarray:
    """Log-probabilities of the true labels that training has."""
    columns = {label: number for number, label in enumerate(classifier.classes_)}
    known = [(row, columns[label]) for row, label in enumerate(truth) if label in columns]
    rows, chosen = np.array(known, int).reshape(-1, 2).T
    return np.log(np.maximum(probabilities[rows, chosen], SMALLEST))


def answer(model: tuple[Any, Any], record: Any, query: Any, kind: str) -> dict[str, Any]:
    """A row of the table."""
    vectorizer, classifier = model
    probabilities = classifier.predict_proba(vectorizer.transform(rows_of(record, kind)))
    predicted = [str(label) for label in classifier.classes_[probabilities.argmax(axis=1)]]
    if kind == "label":
        known = log_probabilities(classifier, probabilities, [query["label"]])
        return {
            "id": query["id"],
            "log_probability": float(known[0]) if len(known) else float(np.log(SMALLEST)),
            "prediction": predicted[0],
            "probability": float(probabilities.max()),
        }
    count = len(query["tags"])  # A prepared text may be cut.
    known = log_probabilities(classifier, probabilities[:count], query["tags"])
    mean = float(known.mean()) if len(known) else float(np.log(SMALLEST))
    return {"id": query["id"], "log_probability": mean, "prediction": predicted[:count]}


if __name__ == "__main__":
    main()
