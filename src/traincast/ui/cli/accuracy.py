"""Commands on measured runs: `validate`, `calibrate`."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from traincast.core.errors import ErrorCollector, InputError
from traincast.ui.cli.app import (
    OUTPUT,
    QUESTION,
    Force,
    HtmlFile,
    Json,
    app,
    check_html,
    file_name,
    print_json,
    write_html,
)
from traincast.ui.cli.completion import names_of_assumptions, names_of_systems


@app.command
def validate(
    *,
    runs: Annotated[
        Path | None,
        Parameter(
            help="Table of runs, a CSV file with the columns of the bundled one; the bundled one without it."
        ),
    ] = None,
    assumptions: Annotated[
        str,
        Parameter(
            completer=names_of_assumptions,
            help="What is assumed: calibrated (each run with its own software stack), a stack, or paper.",
        ),
    ] = "calibrated",
    output: Annotated[
        Path | None,
        Parameter(
            group=OUTPUT,
            help="Figure of predicted against measured, and what errors go with: .svg, .pdf or .png.",
        ),
    ] = None,
    html: HtmlFile = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Predict measured training runs, and say by source how far the predictions are off.

    Example: traincast validate --output parity.svg
    """
    from traincast.accuracy.validate import validate
    from traincast.core.output_files import check_output

    errors = ErrorCollector("validate")
    errors.catch(check_html, html, force)
    if output is not None:
        from traincast.ui.figures.style import ENDINGS

        errors.catch(check_output, output, force, ENDINGS)
    errors.raise_any()
    report = validate(runs, assumptions, parts=output is not None or html is not None)
    if output is not None:
        from traincast.ui.figures import save
        from traincast.ui.text.accuracy import accuracy_figure

        save(accuracy_figure(report), output)
    if html is not None:
        from traincast.ui.html import accuracy_report

        write_html(accuracy_report.page(report, *([] if runs is None else [str(runs)])), html)
    if json:
        from traincast.ui.outputs.accuracy import ValidateOutput

        print_json(ValidateOutput(report, file_name(output), file_name(html)))
    else:
        from traincast.ui.text.accuracy import print_validation
        from traincast.ui.text.plans import console

        print_validation(report, console())
        for path in filter(None, (output, html)):
            print(path)


FileList = Annotated[list[Path] | None, Parameter(negative="", consume_multiple=True)]


@app.command
def calibrate(
    *,
    system: Annotated[
        str,
        Parameter(
            group=QUESTION,
            metavar="SYSTEM",
            completer=names_of_systems,
            help="The system of the catalogue, or the file, that is most like yours.",
        ),
    ],
    runs: Annotated[
        FileList, Parameter(help="Tables of runs, CSV files with the columns of the bundled one.")
    ] = None,
    log: Annotated[
        FileList, Parameter(help="Logs of Megatron-LM, Megatron-Bridge, NeMo, torchtitan or DeepSpeed.")
    ] = None,
    nccl: Annotated[FileList, Parameter(help="Output of nccl-tests or rccl-tests, text or JSON.")] = None,
    gemm: Annotated[
        FileList, Parameter(help="Tables of matrix products, CSV files with m, n, k and a time or TFLOP/s.")
    ] = None,
    config: Annotated[
        Path | None, Parameter(help="Configuration of the runs whose logs do not hold it.")
    ] = None,
    given: Annotated[
        list[str] | None,
        Parameter(
            negative="",
            consume_multiple=True,
            help="What logs and tables do not say, such as model=llama-3-8b seq=4096.",
        ),
    ] = None,
    output: Annotated[
        Path, Parameter(group=OUTPUT, help="File of the calibrated system, .yaml, for --system.")
    ],
    force: Force = False,
    json: Json = False,
) -> None:
    """Calibrate a system to what was measured on your own: a few runs, logs, nccl-tests, products. Three runs help.

    Example: traincast calibrate --system dgx-h100 --runs runs.csv --nccl all_reduce.txt --output my.yaml
    """
    from traincast.accuracy.fit.calibrate import fitted_to
    from traincast.accuracy.fit.measured_files import read
    from traincast.core.output_files import check_output

    errors = ErrorCollector("calibrate")
    errors.catch(check_output, output, force, (".yaml", ".yml"))
    errors.catch(_check_name_value_pairs, given or ())
    settings = {
        name: value for name, _, value in (word.partition("=") for word in given or ()) if name and value
    }
    measured = errors.catch(read, system, runs or (), log or (), nccl or (), gemm or (), config, settings)
    calibration = fitted_to(system, errors.require(measured))
    calibration.write(output, force)
    if json:
        from traincast.ui.outputs.accuracy import CalibrateOutput

        print_json(CalibrateOutput(calibration.record(), str(output)))
    else:
        from traincast.ui.text.accuracy import print_calibration
        from traincast.ui.text.plans import console

        print_calibration(calibration, output, console())


def _check_name_value_pairs(words: Sequence[str]) -> None:
    """Refuse words that are no pairs of name and value, and names that stand there twice."""
    wrong = [
        f"{word!r}: write name=value, such as model=llama-3-8b"
        for word in words
        if not all(word.partition("="))
    ]
    names = Counter(word.partition("=")[0] for word in words)
    wrong += [f"{name}: given {count} times; give one" for name, count in names.items() if count > 1]
    if wrong:
        raise InputError("--given", wrong)
