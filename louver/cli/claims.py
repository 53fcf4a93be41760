"""The command `claims`, which lists statements of documents with their verdicts."""

from __future__ import annotations

import click

from louver.cli.output import result_command
from louver.measure.report.result import Result


@click.command()
@click.argument("document", required=False)
@click.option("--verdict", metavar="TEXT", help='Only statements with this verdict, "contradicts itself" say.')
@result_command
def claims(document: str | None, verdict: str | None) -> Result:
    """List what became of the statements of DOCUMENT (000 to 004), by default a count for each document."""
    from louver.cli.commands.claims import list_claims, list_documents

    if document is not None:
        return list_claims(document, verdict)
    if verdict is not None:
        raise ValueError("--verdict chooses among a document's statements, got no document: name one, 000 say")
    return list_documents()
