"""Serves a run's model over HTTP, with a page to try it on.

python -m experiments.serve --workdir=runs/gs
python -m experiments.serve --workdir=runs/gs --compare=runs/none --port=8001
"""

from absl import flags

import cbert
from cbert.errors import UserError, missing_extra
from cbert.inference.predictor import Predictor
from cbert.inference.text_predictor import TextPredictor
from experiments import command

_WORKDIR = flags.DEFINE_string("workdir", None, "The run's directory.", required=True)
_COMPARE = flags.DEFINE_string(
    "compare", "", "A second run on the same data, shown beside the first."
)
_CHECKPOINT = flags.DEFINE_string("checkpoint", "best", "best, last or a step.")
_HOST = flags.DEFINE_string("host", "127.0.0.1", "The address to listen on.")
_PORT = flags.DEFINE_integer(
    "port", 8000, "The port; 0 takes a free one.", lower_bound=0, upper_bound=65535
)
_BATCH = flags.DEFINE_integer(
    "batch", 32, "The most queries of one call.", lower_bound=1, upper_bound=1024
)
_READ_SECONDS = flags.DEFINE_float(
    "read_seconds", 10.0, "How long a request may take to arrive.", lower_bound=0.1
)
_RESPONSE_SECONDS = flags.DEFINE_float(
    "response_seconds", 10.0, "How long a response may take to compute.", lower_bound=0.1
)
_WRITE_SECONDS = flags.DEFINE_float(
    "write_seconds", 10.0, "How long a client may take to read its response.", lower_bound=0.1
)
_ALLOWED_HOSTS = flags.DEFINE_list(
    "allowed_hosts", [], "Names of this server beside localhost and --host."
)
_ACCESS_LOG = flags.DEFINE_bool("access_log", False, "Print a line for each request to stderr.")


def main() -> None:
    """Loads and compiles the models, then serves them until a signal."""
    try:
        from cbert.serving import app, batching, guard, limits, metrics, server, text_routes
    except ModuleNotFoundError as error:
        raise missing_extra("the server", "serve", error) from None
    bounds = limits.Limits(
        read_seconds=_READ_SECONDS.value,
        response_seconds=_RESPONSE_SECONDS.value,
        write_seconds=_WRITE_SECONDS.value,
    )
    allowed_hosts = tuple(map(guard.host_name, _ALLOWED_HOSTS.value))
    listening = server.listen(_HOST.value, _PORT.value)
    models = _load()
    for model in models.values():
        model.warm_up()
        if isinstance(model, TextPredictor):
            text_routes.warm_up(model)
    batcher = batching.Batcher(_BATCH.value)
    counts = metrics.Metrics(models, batcher)
    application = app.make_app(models, batcher, bounds, counts)
    guarded = guard.Guard(application, bounds, _HOST.value, allowed_hosts)
    observed = metrics.Observer(guarded, counts, app.paths(application), _ACCESS_LOG.value)
    greeting = f"serving {_WORKDIR.value} at {server.address(listening)}; Ctrl-C ends it"
    server.serve(observed, listening, bounds, greeting)
    batcher.close()
    print("ended", flush=True)


def _load() -> dict[str, Predictor] | dict[str, TextPredictor]:
    # There are few sizes, because each takes seconds to compile.
    sizes = sorted({size for size in (1, 8, 32) if size < _BATCH.value} | {_BATCH.value})
    models: dict = {"main": cbert.load(_WORKDIR.value, _CHECKPOINT.value, sizes)}
    if _COMPARE.value:
        models["compare"] = cbert.load(_COMPARE.value, _CHECKPOINT.value, sizes)
        tasks = [model.task for model in models.values()]
        if tasks[0] != tasks[1]:
            raise UserError(
                f"--compare={_COMPARE.value} is a run of the task {tasks[1]}, but "
                f"{_WORKDIR.value} is one of {tasks[0]}; compare runs of one task"
            )
        if models["compare"].schema != models["main"].schema:
            raise UserError(
                f"--compare={_COMPARE.value} was trained on other data than "
                f"{_WORKDIR.value}; their schemas must be the same"
            )
    return models


if __name__ == "__main__":
    command.run(main)
