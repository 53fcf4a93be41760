"""The demo's report: all numbers as Markdown and JSON, and one plot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import louver
from louver.cli.commands.demo_sentences import CALIBRATED, PATTERN, PATTERNS, Embedded
from louver.formats.pattern import has_kernels
from louver.formats.regular import Target
from louver.measure.report.layers import layers_json, layers_table
from louver.measure.report.plots import plot_layers, plot_sentences
from louver.measure.report.products import ProductRow, each_product
from louver.measure.report.sentences import in_words, sentences_table
from louver.models.steps import LayerRow
from louver.runtime.device import current_device

PLOT = "plot.png"

DTYPE = "f16"
"""The element type of the pruned weights."""

MULTIPLIED = ", ".join(str(each) for each in PATTERNS if each != PATTERN and has_kernels("products", str(each), DTYPE))

MEANINGS = f"""
| column | meaning |
|---|---|
| kept | part of each layer's weights that stays |
| mean cosine, least | of each sentence's two embeddings, by these weights and by the stored ones |
| rank corr. | Spearman's, of the similarities of all pairs of sentences by these weights and by the stored ones |
| finds paraphrase | sentences whose nearest neighbour, of all others, is the sentence that says the same |

`louver.linear` multiplies the {PATTERN} weights. NumPy multiplies the others, dense with zeros: only their accuracy is compared here. GPUs also
multiply {DTYPE} weights of {MULTIPLIED}.
No weights are retrained. A model that is to be used is retrained after pruning.
"""

BOUND = """
A product is within the bound if each element differs from the float64 product by no more than `louver.library.numerics` allows.
Rounding to the output's type is most of the bound, so that errors near the bound are usual.
"""


@dataclass(frozen=True, slots=True)
class Report:
    """The demo's results. summary: of the weights, in a line. schedule: of the compiled product.

    sentences: a text gives the reason why there are none.
    """

    summary: str
    schedule: str
    layers: Sequence[LayerRow]
    products: Sequence[ProductRow]
    sentences: Embedded | str

    def closing(self) -> str:
        """The result in one sentence."""
        wrong = [row.name for row in self.products if not row.ok]
        if wrong:
            return f"Out of bounds, which is a bug: {', '.join(wrong)}."
        if isinstance(self.sentences, str):
            return f"All {len(self.products)} products are within the bound."
        rows = self.sentences.rows
        return in_words(rows[str(PATTERN)], self.sentences.stored, rows.get(CALIBRATED))

    def markdown(self) -> str:
        """The closing sentence, the plot and every table."""
        found = self.sentences
        sentences = (
            found if isinstance(found, str) else sentences_table(list(found.rows.values())).markdown() + MEANINGS
        )
        parts = (
            f"# {self.summary}",
            self.closing(),
            f"![{PLOT}]({PLOT})",
            "## Sentences",
            sentences,
            "## Products beside float64",
            each_product(self.products).markdown() + BOUND,
            f"The schedule of the compiled product: `{self.schedule}`",
            "## Weights",
            layers_table(self.layers).markdown()
            + "\nerror: ‖weight − pruned‖ / ‖weight‖ (Frobenius), after the conversion.",
        )
        return "\n\n".join(part.strip() for part in parts) + "\n"

    def record(self) -> dict[str, Any]:
        """Every number and the device, as JSON values."""
        found = self.sentences
        return {
            "louver": louver.__version__,
            "device": str(current_device()),
            "layers": layers_json(self.layers),
            "products": [asdict(row) for row in self.products],
            "sentences": [] if isinstance(found, str) else [asdict(row) for row in found.rows.values()],
        }

    def plot(self, path: Path) -> None:
        """Draw the sentences' similarities, or the weights' sizes without sentences."""
        found = self.sentences
        if isinstance(found, str):
            plot_layers(self.layers, path, self.summary)
        else:
            title = "Similarity of sentences before and after pruning (not retrained)"
            plot_sentences(found.embeddings, path, title)

    def write(self, out: Path) -> None:
        Target.of(out / "report.md").write(self.markdown().encode())
        Target.of(out / "report.json").write(f"{json.dumps(self.record(), indent=1)}\n".encode())
        self.plot(out / PLOT)
