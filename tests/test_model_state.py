"""What the blocks read of the context, dead units, and gradient norms, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cbert
from cbert import parallel
from cbert.data.columns import evenly_spaced
from cbert.evaluation import model_state, sown
from cbert.evaluation.restore import Restored
from cbert.model.conditioning.method import READ
from cbert.model.layers import UNITS
from tests.conftest import small
from tests.test_explain import restored


def test_effective_rank_by_hand():
    assert model_state.effective_rank(np.outer([1, -2, 4], [1, 2, 3])) == pytest.approx(1)
    every = np.concatenate([np.eye(7), -np.eye(7)])
    assert model_state.effective_rank(every + 5) == pytest.approx(7)
    # Singular values of 3 and 1 times the square root of 2.
    three = np.array([[3, 0], [-3, 0], [0, 1], [0, -1]])
    expected = np.exp(-0.75 * np.log(0.75) - 0.25 * np.log(0.25))
    assert model_state.effective_rank(three) == pytest.approx(expected)
    assert model_state.effective_rank(np.full((4, 3), 0.1, np.float32)) == 0


def test_reads_and_dead_units_by_hand():
    """Two examples of two positions, of which one is padding, and a block that reads once."""
    by_position = jnp.array([[[3.0, 4.0], [9.0, 9.0]], [[1.0, 1.0], [-1.0, 7.0]]])
    once = jnp.array([[[2.0, 2.0]], [[-2.0, 2.0]]])
    units = jnp.array([[0.0, 1.0, 0.0, 0.5], [0.0, 0.0, 2.0, 0.5]])
    kept = {"conditioning": {READ: (by_position, once), "fnn_0": {UNITS: (units,)}}}
    values = model_state.read(None, kept, jnp.array([[True, False], [True, True]]))
    measured = model_state.summarize(jax.device_get(values))
    # The means of squares of the first block are 12.5, and of two positions 1 and 25.
    assert measured["rms"] == [pytest.approx(((12.5 + 13) / 2) ** 0.5), 2]
    assert measured["effective_rank"] == [pytest.approx(1), pytest.approx(1)]
    assert measured["dead_units"] == [0.25]


def test_means_are_over_the_tokens_whose_positions_a_block_computes():
    """A method adds a position after two, and the last block computes what the head reads."""
    mask = jnp.array([[False, True], [True, True]])
    all_three = jnp.array([[9.0, 1.0, 50.0], [2.0, 4.0, 70.0]])
    assert sown.over_positions(all_three, mask).tolist() == [1, 3]
    assert sown.over_positions(jnp.array([[5.0], [7.0]]), mask).tolist() == [5, 7]


def test_the_part_of_the_model_that_a_parameter_is_of():
    names = "embedding", "blocks_1", "context_encoder", "conditioning", "transform"
    parts = ["embeddings", "encoder", "context", "context", "head"]
    assert [model_state.part_of(name) for name in names] == parts


@pytest.mark.soak
def test_the_state_of_a_model_made_by_hand(schema, train_split):
    """Block 1 reads along one direction, block 2 always 2, and 5 of 32 units are dead."""
    given = restored(schema, "gsu")
    own = given.params["conditioning"]
    direction = jnp.arange(16) - 3.0
    own["value_0"]["kernel"] = parallel.replicate(jnp.outer(jnp.ones(16), direction))
    own["value_1"] = {
        "kernel": parallel.replicate(jnp.zeros((16, 16))),
        "bias": parallel.replicate(jnp.full(16, 2.0)),
    }
    bias = jnp.where(jnp.arange(32) < 5, -1e6, 1e6)
    own["fnn_0"]["hidden"]["bias"] = parallel.replicate(bias)
    measured = model_state.measure(given, evenly_spaced(train_split, 20))
    assert measured["examples"] == 20
    assert measured["rms"][1] == pytest.approx(2)
    np.testing.assert_allclose(measured["effective_rank"], [1, 0], atol=1e-3)
    assert measured["dead_units"] == [5 / 32]


@pytest.mark.soak
def test_gradient_norms_by_part(data_dir, schema, train_split):
    """Means over the first two batches, each masked by keys of its own."""
    config = small("gsu", data__dir=data_dir, model__dropout=0.0)
    experiment = cbert.build(config)
    given = Restored(experiment.task, 0, parallel.replicate(experiment.state.params), 32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_state, "BATCHES", 2)
        norms = model_state.gradient_norms(given, config, schema, train_split)
    assert list(norms) == list(model_state.PARTS)
    measured = []
    for step in range(2):  # Its keys decide what is masked.
        batch = experiment.task.batch(
            jax.random.split(jax.random.key(step)), experiment.batch(step)
        )
        gradients, _ = jax.grad(experiment.task.loss, has_aux=True)(
            experiment.state.params, batch, {}
        )
        squares = dict.fromkeys(model_state.PARTS, 0.0)
        for name, tree in gradients.items():
            leaves = jax.tree.leaves(tree)
            squares[model_state.part_of(name)] += sum(float((x**2).sum()) for x in leaves)
        measured.append({part: square**0.5 for part, square in squares.items()})
    expected = {part: np.mean([one[part] for one in measured]) for part in model_state.PARTS}
    assert norms == pytest.approx(expected, rel=1e-4)
