"""Serves a run's model over HTTP, with a page to try it on.

python -m experiments.serve --workdir=runs/gsu
python -m experiments.serve --workdir=runs/gsu --compare=runs/none --port=8001
"""

from absl import flags

import cbert
from cbert.errors import UserError
from experiments import command

_WORKDIR = flags.DEFINE_string("workdir", None, "The run's directory.", required=True)
_COMPARE = flags.DEFINE_string(
    "compare", "", "A second run on the same data, to be seen beside the first."
)
_CHECKPOINT = flags.DEFINE_string("checkpoint", "best", "best, last or a step.")
_HOST = flags.DEFINE_string("host", "127.0.0.1", "The address to listen on.")
_PORT = flags.DEFINE_integer(
    "port", 8000, "The port; 0 takes a free one.", lower_bound=0, upper_bound=65535
)
_BATCH = flags.DEFINE_integer(
    "batch", 32, "The most questions to answer in one call.", lower_bound=1, upper_bound=1024
)
_READ_SECONDS = flags.DEFINE_float(
    "read_seconds", 10.0, "How long a request may take to arrive.", lower_bound=0.1
)
_ANSWER_SECONDS = flags.DEFINE_float(
    "answer_seconds", 10.0, "How long a request may take to be answered.", lower_bound=0.1
)


def main() -> None:
    """Loads and compiles the models, then answers until it is told to end."""
    try:
        from cbert.serving import app, batching, limits, server
    except ModuleNotFoundError as error:
        raise UserError(f'{error}; the server needs pip install ".[serve]"') from None
    bounds = limits.Limits(
        read_seconds=_READ_SECONDS.value, answer_seconds=_ANSWER_SECONDS.value
    )
    listening = server.listen(_HOST.value, _PORT.value)
    models = _load()
    for model in models.values():
        model.warm_up()
    batcher = batching.Batcher(_BATCH.value)
    application = app.make_app(models, batcher, bounds)
    print(
        f"serving {_WORKDIR.value} at {server.address(listening)}; Ctrl-C ends it", flush=True
    )
    server.serve(application, listening, bounds)
    batcher.close()
    print("ended", flush=True)


def _load() -> dict:
    # Few sizes, for each takes seconds to compile.
    sizes = sorted({size for size in (1, 8, 32) if size < _BATCH.value} | {_BATCH.value})
    models = {"main": cbert.load(_WORKDIR.value, _CHECKPOINT.value, sizes)}
    if _COMPARE.value:
        models["compare"] = cbert.load(_COMPARE.value, _CHECKPOINT.value, sizes)
        if models["compare"].schema != models["main"].schema:
            raise UserError(
                f"--compare={_COMPARE.value} was trained on other data than "
                f"{_WORKDIR.value}; their schemas must be the same"
            )
    return models


if __name__ == "__main__":
    command.run(main)
