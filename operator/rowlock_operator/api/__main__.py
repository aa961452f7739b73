"""`python -m rowlock_operator.api`: write what is generated from the models, or verify it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .generated import chart_files, crd_files, drift, reference_files, values_files

app = typer.Typer(help=__doc__, add_completion=False, no_args_is_help=True)

Output = Annotated[Path, typer.Option(help="Folder of the CustomResourceDefinitions.")]
Chart = Annotated[Path, typer.Option(help="Folder of the chart's templates.")]
Values = Annotated[Path, typer.Option(help="Folder of the chart whose values hold specs.")]
Pages = Annotated[Path, typer.Option(help="Folder of the reference pages.")]

_CRDS = Path("crds")
_CHART = Path("charts/rowlock-crds/templates")
_VALUES = Path("charts/rowlock")
_PAGES = Path("docs/reference")


@app.command()
def generate(output: Output = _CRDS, chart: Chart = _CHART, values: Values = _VALUES) -> None:
    """Write the CustomResourceDefinitions, also for the charts."""
    for folder in (crd_files(output), chart_files(chart), values_files(values)):
        for path in folder.write():
            typer.echo(path)


@app.command()
def docs(pages: Pages = _PAGES) -> None:
    """Write the reference pages."""
    for path in reference_files(pages).write():
        typer.echo(path)


@app.command()
def verify(
    output: Output = _CRDS,
    chart: Chart = _CHART,
    values: Values = _VALUES,
    pages: Pages = _PAGES,
) -> None:
    """Exit with 1 and a diff if a file is not as it would be written."""
    folders = [
        crd_files(output),
        chart_files(chart),
        values_files(values),
        reference_files(pages),
    ]
    if difference := drift(folders):
        typer.echo(difference, nl=False)
        typer.echo("Generated files differ from the models: run `make crds`.", err=True)
        raise typer.Exit(1)


if __name__ == "__main__":
    app(prog_name="python -m rowlock_operator.api")
