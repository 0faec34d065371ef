"""What the commands for reference, and `study`, `merge` and `plot` print with `--json`; errors."""

from typing import Annotated

from traincast.catalog import Versions
from traincast.core import Doc, Result

HtmlReport = Annotated[str | None, Doc("with `--html`: the report written", optional=True)]


class Answer(Result):
    """What follows from the data of the catalogue and the model, and names the versions of both."""

    @property
    def version(self) -> Annotated[Versions, Doc(place=9)]:
        """Versions of the package, its data and its model."""
        return Versions.of_installation()


class CatalogFigure(Result):
    """A figure of the catalogue."""

    path: Annotated[str, Doc("name of the figure")]
    value: Annotated[float, Doc("value in SI units")]
    unit: Annotated[str, Doc("unit")]
    source: Annotated[str, Doc("where it comes from")]
    basis: Annotated[str, Doc("kind of source: specification, measured, fitted, …")]


class CatalogOutput(Result, kw_only=True):
    """Every name of the catalogue or, with a name, every figure of one entry."""

    models: Annotated[list[str] | None, Doc("models, without a name", optional=True)] = None
    systems: Annotated[list[str] | None, Doc("systems, without a name", optional=True)] = None
    accelerators: Annotated[list[str] | None, Doc("accelerators, without a name", optional=True)] = None
    software_stacks: Annotated[list[str] | None, Doc("software stacks, without a name", optional=True)] = None
    name: Annotated[str | None, Doc("the entry", optional=True)] = None
    taken: Annotated[
        str | None, Doc("what the name was taken for, if it is not that of an entry", optional=True)
    ] = None
    figures: Annotated[list[CatalogFigure] | None, Doc("every figure of the entry", optional=True)] = None


class StudyOutput(Answer):
    """Table of a study."""

    study: Annotated[str, Doc("name of the study")]
    output: Annotated[str, Doc("table that was written")]
    rows: Annotated[int | None, Doc("rows of the table; `null` for one shard of several")]
    candidates: Annotated[int | None, Doc("candidates decided; `null` for one shard of several")]
    seconds: Annotated[float, Doc("time it took", "s")]
    html: HtmlReport = None


MergeOutput = StudyOutput


class PlotOutput(Result):
    """A figure."""

    figure: Annotated[str, Doc("file that was written")]
    kind: Annotated[str, Doc("kind of figure")]


class ServeOutput(Result):
    """Address of the explorer, once it answers."""

    url: Annotated[str, Doc("address of the page")]
    host: Annotated[str, Doc("address that it listens on")]
    port: Annotated[int, Doc("port that it listens on")]


class SchemaOutput(Result):
    """A JSON Schema; without a name `outputs`, the names there are."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> dict[str, object]:
        return {"type": "dict"}


class DocsOutput(Result, kw_only=True):
    """A page of the documentation or, without a name, all pages."""

    pages: Annotated[dict[str, str] | None, Doc("title of each page, without a name", optional=True)] = None
    path: Annotated[str | None, Doc("file of the page", optional=True)] = None
    text: Annotated[str | None, Doc("its text, in Markdown", optional=True)] = None


class ExampleOutput(Result, kw_only=True):
    """An example or, without a name, all examples."""

    examples: Annotated[
        dict[str, str] | None, Doc("what each file is, of a folder or without a name", optional=True)
    ] = None
    path: Annotated[str | None, Doc("file of the example", optional=True)] = None
    text: Annotated[str | None, Doc("its content", optional=True)] = None
    written: Annotated[list[str] | None, Doc("with `--output`: files written", optional=True)] = None


class CompletionOutput(Result):
    """Completion script of a shell."""

    shell: Annotated[str, Doc("name of the shell")]
    script: Annotated[str, Doc("script that the shell reads")]


class Failure(Result):
    """Reason of a failure."""

    exit_code: Annotated[
        int, Doc("1: nothing fits; 2: the input cannot be used, or output not written; 130: interrupted")
    ]
    message: Annotated[str, Doc("message on standard error")]
    subject: Annotated[str | None, Doc("what was being read: a file, an option, a command")]
    problems: Annotated[list[str], Doc("every mistake")]


class ErrorOutput(Result):
    """An error, in place of the answer."""

    error: Annotated[Failure, Doc("what is wrong")]
