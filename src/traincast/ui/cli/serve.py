"""The command that serves the explorer: `serve`."""

from typing import Annotated

from cyclopts import Parameter

from traincast.core.errors import TraincastError
from traincast.ui.cli.app import Json, app, outlive_closed_pipes, print_json


@app.command
def serve(
    *,
    host: Annotated[
        str, Parameter(help="Address to listen on; the default is reached from this machine only.")
    ] = "127.0.0.1",
    port: Annotated[int, Parameter(help="Port to listen on; 0 takes any that is free.")] = 8765,
    json: Json = False,
) -> None:
    """Serve the explorer, a web page that searches anew at every change of model, machine and knobs. Ctrl-C ends it.

    Example: traincast serve --port 8765
    """
    try:
        from traincast.ui.explorer.server import listen, run
    except ImportError as error:
        missing = f"the explorer needs {error.name}: pip install 'traincast[explorer]'"
        raise TraincastError(missing) from None
    outlive_closed_pipes()  # a browser that hangs up ends nothing
    with listen(host, port) as socket:
        address = socket.getsockname()
        url = f"http://{f'[{address[0]}]' if ':' in address[0] else address[0]}:{address[1]}/"

        def announce() -> None:
            if json:
                from traincast.ui.outputs.reference import ServeOutput

                print_json(ServeOutput(url, address[0], address[1]))
            else:
                print(f"traincast explorer: {url}   (Ctrl-C ends it)", flush=True)

        run(socket, host, announce)
