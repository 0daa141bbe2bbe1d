"""Item embeddings that begin with the vectors of a file, and items of a width of their own."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pyarrow
import pyarrow.parquet
import pytest
from flax import linen as nn

from cbert.errors import UserError
from cbert.evaluation import evaluate, evaluation_files
from cbert.model import cost
from cbert.model.config import ModelConfig
from cbert.model.embeddings import ItemEmbedding
from cbert.schema import MASK_ITEM, PAD_ITEM, UNKNOWN_ITEM
from cbert.training import config as config_lib
from cbert.training import item_vectors, loop
from cbert.training import optimizer as optimizer_lib
from cbert.training import run as run_lib
from tests.conftest import small
from tests.steps import flat
from tests.test_initialize import best_params
from tests.test_modulation import normed

WIDTH = 5


def write(path, names, vectors):
    """The three forms of a file of vectors."""
    if path.suffix == ".npy":
        np.save(path, vectors)
        path.with_suffix(".txt").write_text("".join(f"{name}\n" for name in names))
    elif path.stem == "lists":
        columns = {"name": list(names), "vector": list(vectors)}
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
    else:
        entries = {f"v{entry}": column for entry, column in enumerate(vectors.T)}
        table = pyarrow.table({"name": pyarrow.array(names).dictionary_encode(), **entries})
        pyarrow.parquet.write_table(table, path)
    return path


@pytest.fixture
def named(schema):
    """Names and vectors of all items but the first three, backwards, and of a stranger."""
    names = ["a stranger", *schema.items[:2:-1]]
    return names, np.random.default_rng(0).normal(size=(len(names), WIDTH)) * 7


def config_of(path, **overrides):
    overrides = {"model__item_dimension": WIDTH, "model__layers": 1} | overrides
    return small("none", train__item_embeddings=str(path), **overrides)


@pytest.mark.parametrize("name", ["own.npy", "lists.parquet", "columns.parquet"])
def test_vectors_are_matched_by_name(schema, named, tmp_path, name):
    read = item_vectors.read(config_of(write(tmp_path / name, *named)), schema)
    fresh = np.random.default_rng(1).normal(size=(len(schema.items), WIDTH))
    began = read({"embedding": {"items": fresh, "bias": 1.0}, "head": 2.0})
    known = named[1][1:][::-1]
    factor = np.sqrt((fresh**2).mean() / (known**2).mean())
    items = began["embedding"].pop("items")
    np.testing.assert_allclose(items[:3], fresh[:3], rtol=1e-6)
    np.testing.assert_allclose(items[3:], known * factor, rtol=1e-5)
    assert began == {"embedding": {"bias": 1.0}, "head": 2.0}
    (line,) = read.lines
    assert f"{len(schema.items) - 3} of {len(schema.items)} items by name, 3 not in it" in line
    assert line.endswith(f"; vectors times {factor:.4g}")


def test_names_may_follow_a_byte_order_mark(schema, tmp_path):
    """As Windows writes it; the first item would have no vector."""
    path = write(tmp_path / "own.npy", schema.items, np.eye(len(schema.items), WIDTH))
    path.with_suffix(".txt").write_text("\n".join(schema.items), "utf-8-sig")
    read = item_vectors.read(config_of(path), schema)
    assert read.rows.tolist() == [*range(len(schema.items))]


def test_items_of_another_width_are_mapped_for_input_and_output():
    """They are the items of a plain table that holds what the map makes of them."""
    config, narrow = (ModelConfig(dimension=4, item_dimension=width) for width in (0, 3))
    random = np.random.default_rng(0)
    shapes = {"items": (6, 3), "special": (3, 4), "bias": (6,), "projection": (3, 4)}
    own = {name: random.normal(size=shape) for name, shape in shapes.items()}
    plain = {**own, "items": own["items"] @ own["projection"]}
    del plain["projection"]
    codes, hidden = np.array([[3, MASK_ITEM, UNKNOWN_ITEM, 5]]), random.normal(size=(1, 2, 4))

    def embed(embedding):
        x, table = embedding(codes)
        return x, embedding.embed_items(codes), embedding.comparable(hidden) @ table.T

    expected, made = (
        nn.apply(embed, ItemEmbedding(one, 6, 4))({"params": params})
        for one, params in ((config, plain), (narrow, own))
    )
    for one, other in zip(made, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert made[0].shape == (1, 4, 4)


def test_embedded_items_by_hand():
    """Padding, unknown and masked items have rows of their own; a norm follows positions."""
    config = ModelConfig(dimension=4, positions=True, embedding_norm=True)
    random = np.random.default_rng(0)
    shapes = {"items": (6, 4), "special": (3, 4), "bias": (6,), "positions": (3, 4)}
    own = {name: random.normal(size=shape) for name, shape in shapes.items()}
    own["norm"] = {name: random.normal(size=4) for name in ("scale", "bias")}
    codes = np.array([[0, 5, MASK_ITEM], [3, UNKNOWN_ITEM, PAD_ITEM]])
    x, _ = ItemEmbedding(config, 6, 3).apply({"params": own}, codes)
    rows = np.concatenate([own["items"], own["special"]])[[[0, 5, 8], [3, 7, 6]]]
    expected = normed(rows + own["positions"]) * own["norm"]["scale"] + own["norm"]["bias"]
    np.testing.assert_allclose(x, expected, atol=1e-5)


@pytest.mark.soak
def test_the_map_of_items_keeps_lengths_at_first():
    config = ModelConfig(dimension=300, item_dimension=50)
    made = ItemEmbedding(config, 3, 4).init(jax.random.key(0), np.zeros((1, 1), int))
    projection = made["params"]["projection"]
    assert np.square(projection).sum(axis=1).mean() == pytest.approx(1, rel=0.05)


def test_the_map_is_counted_as_cost(schema):
    plain, mapped = (
        config_lib.build_model(small("none", model__item_dimension=width), schema)
        for width in (0, WIDTH)
    )
    assert cost.multiply_adds(mapped, 4, 1) - cost.multiply_adds(plain, 4, 1) == 5 * WIDTH * 16


def test_a_part_of_a_part_is_frozen():
    params = {"embedding": {"items": jnp.ones(2), "bias": jnp.ones(2)}, "head": jnp.ones(2)}
    optimizer = optimizer_lib.freeze(optax.sgd(0.5), ["embedding/items"])
    updates, _ = optimizer.update(params, optimizer.init(params), params)
    expected = {"embedding/items": 0.0, "embedding/bias": -0.5, "head": -0.5}
    assert {name: value[0] for name, value in flat(updates).items()} == expected


def test_a_part_of_a_part_must_exist(schema, data_dir):
    config = small("none", data__dir=data_dir, model__layers=1, train__frozen="embedding/item")
    message = (
        "'embedding/item'; the model's parts are embedding/bias, embedding/items, embedding/s"
    )
    with pytest.raises(UserError, match=message):
        run_lib.set_up(config, schema)


def nan(names, vectors):
    return names, np.where(np.arange(len(names))[:, None] == 4, np.nan, vectors)


BAD = {
    "other width": (lambda n, v: (n, v[:, 1:]), r"has vectors of 4 entries, .*dimension is 5"),
    "not finite": (nan, "the vector of '.*' is not finite"),
    "twice": (lambda n, v: ([*n[:-1], n[3]], v), "has 2 vectors; leave one"),
    "no item": (
        lambda n, v: ([f"x{name}" for name in n], v),
        "names none of the data",
    ),
    "too few names": (lambda n, v: (n[1:], v), "vectors and .* names; give one name a vector"),
    "one number each": (lambda n, v: (n, v[:, 0]), r"holds float64 of the shape \["),
    "zeros": (lambda n, v: (n, 0 * v), "are all zero"),
}


@pytest.mark.parametrize("case", BAD)
def test_vectors_that_do_not_fit_are_refused(schema, named, tmp_path, case):
    change, message = BAD[case]
    path = write(tmp_path / "own.npy", *change(*named))
    with pytest.raises(UserError, match=message):
        item_vectors.read(config_of(path), schema)


def test_damaged_files_are_refused(schema, named, tmp_path):
    path = write(tmp_path / "own.npy", *named)
    (tmp_path / "cut.npy").write_bytes(path.read_bytes()[:200])
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 and no more")
    with (tmp_path / "archive.npy").open("wb") as file:
        np.savez(file, named[1])
    pyarrow.parquet.write_table(pyarrow.table({"x": [1.0]}), tmp_path / "numbers.parquet")
    ragged = pyarrow.table({"name": ["a", "b"], "vector": [[1.0], [1.0, 2.0]]})
    pyarrow.parquet.write_table(ragged, tmp_path / "ragged.parquet")
    for name, message in (
        ("none.npy", "none.npy: no such file"),
        ("cut.npy", r"cut.npy: not readable \(.*\); write it again"),
        ("archive.npy", "archive.npy: not readable"),
        ("cut.parquet", "cut.parquet: not readable"),
        ("numbers.parquet", "0 columns of strings and 1 others; give one of names, numbers as"),
        ("ragged.parquet", "has vectors of 2 lengths"),
        ("own.csv", "own.csv: unknown format; use .npy"),
    ):
        with pytest.raises(UserError, match=message):
            item_vectors.read(config_of(tmp_path / name), schema)
    path.with_suffix(".txt").unlink()
    with pytest.raises(UserError, match=r"own.txt: no such file"):
        item_vectors.read(config_of(path), schema)


@pytest.mark.parametrize(
    ("name", "value"), [("model__item_dimension", 5), ("train__item_embeddings", "own.npy")]
)
def test_texts_have_no_items(name, value):
    config = small(task__name="classification", **{name: value})
    with pytest.raises(UserError, match="which is for the task masked_item; leave it out for"):
        config_lib.check(config)


@pytest.mark.soak
@pytest.mark.parametrize("width", [16, WIDTH])
def test_a_run_keeps_frozen_vectors_and_goes_on_without_the_file(
    data_dir, schema, named, tmp_path, width
):
    names, vectors = named
    vectors = np.resize(vectors, (len(names), width))
    path, workdir = write(tmp_path / "own.npy", names, vectors), tmp_path / "run"
    config = config_of(path, data__dir=data_dir, train__frozen="embedding/items")
    config.model.item_dimension = width % 16
    loop.train(config, workdir)
    path.unlink()
    (workdir / "finished.json").unlink()
    loop.train(config, workdir)
    assert json.loads((workdir / "finished.json").read_text())["step"] == 6
    result = evaluate.evaluate(workdir, evaluate.EvaluationOptions())
    assert evaluation_files.summary(result)["results"]["model"]["cross_entropy"]["mean"] > 0
    items = best_params(workdir)["embedding/items"]
    cosine = (items[3:] * vectors[:0:-1]).sum(1) / np.linalg.norm(items[3:], axis=1)
    np.testing.assert_allclose(cosine, np.linalg.norm(vectors[:0:-1], axis=1), rtol=1e-5)
    with pytest.raises(UserError, match="no such file"):
        loop.train(config, tmp_path / "another")
    assert not (tmp_path / "another").exists()
