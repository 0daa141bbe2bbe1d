"""What predictors of items and of texts have in common."""

from collections.abc import Mapping, Sequence
from typing import Any

import ml_collections
import numpy as np

from cbert import progress
from cbert.schema import Schema


class BasePredictor:
    """A model on one device.

    Attributes:
      schema: Vocabulary, features and target.
      config: The run's config.
      step: The step of the parameters.
      program: The compiled functions.
      uses_context: Whether what the model says depends on the context.
    """

    def __init__(
        self,
        schema: Schema,
        config: ml_collections.ConfigDict,
        step: int,
        program: Any,
        *,
        uses_context: bool,
    ) -> None:
        self.schema, self.config, self.step = schema, config, step
        self.program, self.uses_context = program, uses_context

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.method}, {self.task}, step {self.step})"

    @property
    def method(self) -> str:
        """Short name of the conditioning method."""
        return self.config.model.method

    @property
    def task(self) -> str:
        """Name of the task."""
        return self.config.task.name

    @property
    def outside_training(self) -> bool:
        """Whether a context with a feature dropped may be unlike any in training."""
        return self.config.train.context_dropout == 0

    def feature_importance(
        self, context: Mapping[str, Any], observed: Sequence[str], values: np.ndarray
    ) -> dict[str, float]:
        """What each feature of a context adds to a value.

        Args:
          context: The features; one that is not observed adds nothing.
          observed: The features that were dropped, one after the other.
          values: `[1 + N]`, with all features, then without each of N observed ones.
        """
        added = dict(zip(observed, (values[0] - values[1:]).tolist(), strict=True))
        return {name: added.get(name, 0.0) if self.uses_context else 0.0 for name in context}

    def warm_up(self) -> None:
        """Compiles what predictions and explanations need, lists of up to 16 included."""
        sizes = len(self.program.shapes)
        with progress.bar(desc="compiling", total=sizes, leave=False) as bar:
            for shape in self.program.warm_up():
                bar.set_postfix_str(shape)
                bar.update()
