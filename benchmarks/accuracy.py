"""Accuracy by pattern and method: SmolLM2-135M on three held-out texts.

    python benchmarks/accuracy.py --parts FOLDER/acc0 FOLDER/acc1 --stages dense,oneshot --budget 500 --out FILE.json
    python benchmarks/accuracy.py --merge A.json B.json --out benchmarks/results/accuracy/h200.json

Protocol: the weights of `accuracy_prepare.py`, dequantized, in bf16 (f32 on a CPU); dense is these weights. Texts in windows of 1,024 tokens that
do not overlap; no context is carried, and each token of a window but the first counts. Perplexity on articles, news and Python's documents; KL of
the next-token distributions from dense, and share of equal most likely tokens, on articles. Calibration: other articles and documents of Debian
packages; distillation reads text that the model writes, too. Damping: chosen for each layer by the last eighth of each calibration
text; other options are those of an earlier study of this model. Seconds: of the calls, with their warm-up;
evaluation is not counted. A row that distils begins with the row named in `begins`. e4m3 rows: `compress_` and `quantize_` after pruning;
dense in e4m3: rounded weights and inputs with a scale for each row and token. Speeds: shapes of Llama 3 8B, `louver.torch.gain.measure`,
16 and 2,048 tokens; a model's speed is that of a block with the patterns that its layers have.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import platform
import re
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import torch
from accuracy_cases import BEST, CHOICES, Case, stages
from accuracy_data import Prepared
from accuracy_speed import FAST, speeds
from torch import Tensor, nn

import louver
import louver.torch
from louver.measure.machine import commit, header
from louver.measure.record import write_record
from louver.measure.report.accuracy import accuracy_table, read_accuracy
from louver.measure.report.header import SCHEMA
from louver.measure.report.records import draw
from louver.torch.accuracy.text import evaluate, generate_tokens
from script import arguments

RESULTS: Final = ("articles", "news", "pydoc")
OTHERS: Final = ("other_articles", "other_documents")

SPECIAL: Final = ("dense", "own", "speed", *CHOICES)
"""Stages that are no cases."""


class Kept(MutableMapping[str, Any]):
    """What cases made, by their names: in memory, and in a folder for other processes."""

    def __init__(self, folder: Path | None) -> None:
        self._folder, self._made = folder, dict[str, Any]()

    def __getitem__(self, name: str) -> Any:
        if name not in self._made and self._folder is not None and self._file(name).exists():
            self._made[name] = torch.load(self._file(name), map_location="cpu")
        return self._made[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._made[name] = value
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            # Another process may read at any time.
            torch.save(value, part := self._file(name).with_suffix(".part"))
            part.rename(self._file(name))

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    def _file(self, name: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{re.sub('[^0-9A-Za-z]+', '-', name)}.pt"


class Study:
    """The model, its texts, and what a run found. kept: weights by the name of their case, and text that the model wrote."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.begin = given, time.perf_counter()
        self.device = torch.device(given.device)
        self.prepared = Prepared.read(given.parts)
        kind = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        self.dense: nn.Module = self.prepared.model().to(self.device, kind)
        before: dict[str, Any] = json.loads(given.resume.read_text(encoding="utf-8")) if given.resume else {}
        self.rows: list[dict[str, Any]] = before.get("rows", [])
        self.missing: dict[str, str] = {}
        self.kept = Kept(given.keep)
        self.stages = stages(given.share)
        self.allocations: dict[str, Any] = {}
        self.reference: dict[str, float] = {}
        self.extras: dict[str, Any] = {}
        self.others: dict[str, float] = {}
        self.writing: dict[int, float] = {}
        self.say(f"loaded {prepared_name(self.prepared)} on {self.device}")

    @property
    def spent(self) -> float:
        return time.perf_counter() - self.begin

    def say(self, text: str) -> None:
        print(f"[{self.spent:6.1f} s] {text}", flush=True)

    # ---- texts
    def text(self, name: str, most: int) -> Tensor:
        """Windows of a text, evenly spread over it."""
        rows = self.prepared.windows(name, self.given.length)
        return rows[torch.linspace(0, len(rows) - 1, min(most, len(rows))).long()]

    def calibration(self) -> dict[str, Tensor]:
        half = max(1, self.given.calibration // 2)
        return {name: self.text(f"calibration_{name}", half) for name in ("articles", "documents")}

    def training(self, written: int) -> dict[str, Tensor]:
        """Rows of half a window for distillation: articles twice, documents, and what the model writes."""
        length = self.given.length // 2
        names = ("calibration_articles", "calibration_documents", "training_documents")
        found = {name: self.prepared.windows(name, length) for name in names if name in self.prepared.index["texts"]}
        own = {"own": self.own(written)} if written else {}
        return {**found, "articles again": found["calibration_articles"], **own}

    def own(self, written: int) -> Tensor:
        """Text that the dense model writes, once: many rows at a time, because a token of all rows takes as long as one."""
        if (name := f"own {written}") not in self.kept:
            length, begin, at_once = self.given.length // 2, time.perf_counter(), 1 << 20
            rows = [max(1, min(at_once, written - at) // length) for at in range(0, written, at_once)]
            made = torch.cat([generate_tokens(self.dense, n, length, seed=2 + i).cpu() for i, n in enumerate(rows)])
            self.wait()
            self.writing[written] = time.perf_counter() - begin
            self.say(f"wrote {made.numel():,} tokens in {self.writing[written]:.1f} s")
            self.kept[name] = made
        return self.kept[name]

    # ---- rows
    def measured(self, model: nn.Module, texts: tuple[str, ...] = RESULTS) -> dict[str, Any]:
        found: dict[str, Any] = {"perplexity": {}}
        for name in texts:
            rows = self.text(name, self.given.windows)
            got = evaluate(model, rows, self.dense if name == "articles" else None)
            found["perplexity"][name] = round(got.perplexity, 4)
            if got.kl is not None and got.top1 is not None:
                found |= {"kl": round(got.kl, 5), "top1": round(got.top1, 5), "counted": got.counted}
        return found

    def add(self, name: str, method: str, model: nn.Module, **more: Any) -> None:
        row = {"pattern": name, "method": method, **self.measured(model), **more, "commit": commit()}
        self.reference = self.reference or self.dense_row()
        row["ratio"] = {text: round(each / self.reference[text], 4) for text, each in row["perplexity"].items()}
        self.rows.append(row)
        shown = "  ".join(
            f"{text} {each:9.2f} ({row['ratio'][text]:6.3f} ×)" for text, each in row["perplexity"].items()
        )
        self.say(
            f"{name:12} {method:38} {shown}  KL {row['kl']:.4f}  top-1 {row['top1']:.3f}  {more.get('seconds', '')}"
        )
        self.write()

    def dense_row(self) -> dict[str, float]:
        """Perplexities of the dense model, known after the first row of a run."""
        known = next((row for row in self.rows if row["pattern"] == "dense"), None)
        return (known or self.measured(self.dense))["perplexity"]

    def run(self, case: Case) -> None:
        """Prune, distil and measure a case."""
        more: dict[str, Any] = {}
        if case.begins in self.kept:
            model = copy.deepcopy(self.dense)
            model.load_state_dict(self.kept[case.begins])
        else:
            model, more = self.prune(case)
            name = case.begins or case.name
            if any(each.begins == name for stage in self.stages.values() for each in stage):
                self.kept[name] = {key: value.cpu() for key, value in model.state_dict().items()}
        if case.minutes:
            written = case.written or self.given.generate
            data = self.training(written)
            minutes = case.minutes - (self.writing.get(written, 0) / 60 if case.written else 0)
            report = louver.torch.distill_(model, data, teacher=self.dense, minutes=minutes)
            more["trained_on"] = {name: text.numel() for name, text in data.items()}
            self.say(str(report))
            told_of = json.loads(report.json())
            more |= {"distillation": {name: each for name, each in told_of.items() if name != "curve"}}
        what = {"zeros": zeros(model), "options": shown(case), "minutes": case.minutes}
        self.add(case.pattern, case.method, model, **more, **what, shares=shares(model))
        if case.e4m3:
            more.pop("seconds", None)
            self.add(case.pattern, f"{case.method}, e4m3", in_e4m3(model), **more, **what)

    def prune(self, case: Case) -> tuple[nn.Module, dict[str, Any]]:
        model, options = copy.deepcopy(self.dense), dict(case.options)
        calibrated = bool(options)
        if calibrated:
            options["calibration"] = self.calibration()
        begin = time.perf_counter()
        pattern = case.pattern.split(" on ")[0]
        if case.budget is not None:
            options["per_layer"] = self.allocation(*case.budget)
        report = louver.torch.prune_(model, pattern, **options)
        self.wait()
        seconds = time.perf_counter() - begin
        return model, {"seconds": round(seconds, 2), **told(report)}

    def allocation(self, budget: str, patterns: tuple[str, ...]) -> Any:
        """The patterns of layers at a budget, found once."""
        if budget not in self.allocations:
            begin = time.perf_counter()
            few = {name: rows[:: max(1, len(rows) // 24)] for name, rows in self.calibration().items()}
            found = louver.torch.allocate(copy.deepcopy(self.dense), budget, calibration=few, patterns=patterns)
            self.say(f"{found}\nallocated in {time.perf_counter() - begin:.1f} s")
            self.allocations[budget] = found
        return self.allocations[budget]

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    # ---- stages
    def dense_rows(self) -> None:
        self.add("dense", "bf16" if self.device.type == "cuda" else "f32", self.dense, zeros=0.0)
        rounded = copy.deepcopy(self.dense)
        with rounded_products(rounded):
            self.add("dense", "e4m3", rounded, zeros=0.0)

    def choose(self, choice: Mapping[str, Any]) -> None:
        """The result of some options of 2:4 on the two texts apart from the results."""
        options = {**BEST, **choice}
        named, distil = options.pop("calibration", None), options.pop("distill", None)
        given, model = self.calibration(), copy.deepcopy(self.dense)
        begin = time.perf_counter()
        report = louver.torch.prune_(model, "2:4", **options, calibration={named: given[named]} if named else given)
        self.wait()
        row = {"options": {**choice}, "seconds": round(time.perf_counter() - begin, 2), **told(report)}
        if distil:
            done = louver.torch.distill_(model, self.training(self.given.generate), teacher=self.dense, **distil)
            row |= {"steps": done.steps, "tokens": done.tokens, "prepared_seconds": round(done.prepared_seconds, 1)}
        self.others = self.others or self.measured(self.dense, OTHERS)["perplexity"]
        found = self.measured(model, OTHERS)["perplexity"]
        row["ratio"] = {name: round(each / self.others[name], 4) for name, each in found.items()}
        self.extras.setdefault("choices", []).append(row)
        self.say(str(row))

    def stage(self, name: str) -> None:
        if name == "dense":
            return self.guarded("dense bf16", 20, self.dense_rows)
        if name in CHOICES:
            for choice in CHOICES[name]:
                needs = 20 + 0.3 * choice.get("tune", 0) + 60 * choice.get("distill", {}).get("minutes", 0)
                self.guarded(f"choice {choice}", needs, lambda each=choice: self.choose(each))
            return None
        if name == "own":
            return self.guarded("own", 40, lambda: self.own(self.given.generate))
        if name == "speed":
            return self.guarded("speed", 30, self.speed)
        for case in self.stages[name]:
            self.guarded(case.name, case.needs, lambda case=case: self.run(case))
        return None

    def speed(self) -> None:
        self.extras["layers"] = speeds(self.device)
        self.say("\n".join(map(str, self.extras["layers"])))
        self.write()

    def guarded(self, name: str, needs: float, run: Callable[[], object]) -> None:
        """Run a part of the study if there is time; an error becomes the reason why its row is missing."""
        if any(f"{row['pattern']} {row['method']}" == name for row in self.rows):
            return None
        if self.spent + needs > self.given.budget:
            self.missing[name] = f"{self.given.budget:.0f} s were not enough"
            self.write()
            return self.say(f"skipped: {name}: {self.missing[name]}")
        try:
            run()
        except Exception as error:
            self.missing[name] = f"{type(error).__name__}: {error}"[:300]
            self.say(f"{name}: {traceback.format_exc(limit=-6)}")
        finally:
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            self.write()

    def write(self) -> None:
        if self.given.out is None:
            return
        texts = {
            name: {"windows": min(self.given.windows, each["tokens"] // self.given.length), "sha256": each["sha256"]}
            for name, each in self.prepared.index["texts"].items()
        }
        facts = {
            "schema": SCHEMA,
            "kind": "accuracy",
            **machine(self.device),
            "protocol": " ".join((__doc__ or "").split("Protocol: ", 1)[1].split()),
            "model": self.prepared.index["model"],
            "licence": self.prepared.index["licence"],
            "length": self.given.length,
            "calibration": self.given.calibration,
            "texts": texts,
        }
        write_record(self.given.out, {**facts, **self.extras, "missing": self.missing, "rows": self.rows})


def prepared_name(prepared: Prepared) -> str:
    return f"{prepared.index['model']} ({prepared.index['licence']})"


def machine(device: torch.device) -> dict[str, Any]:
    if device.type == "cuda":
        return header(torch)
    versions = {"louver": louver.__version__, "commit": str(commit()), "torch": torch.__version__}
    return {
        "device": platform.processor() or "CPU",
        "versions": versions,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def layers(model: nn.Module) -> dict[str, nn.Linear]:
    """The linear layers of the blocks."""
    return {name: each for name, each in model.named_modules() if isinstance(each, nn.Linear) and "lm_head" not in name}


def zeros(model: nn.Module) -> float:
    """Share of zeros among the weights of the blocks' linear layers."""
    found = [(int((each.weight == 0).sum()), each.weight.numel()) for each in layers(model).values()]
    return round(sum(some for some, _ in found) / sum(every for _, every in found), 4)


def shares(model: nn.Module) -> dict[str, dict[str, float]]:
    """By the last part of layers' names, the share of them that keeps each fast pattern: the first that fits."""
    found: dict[str, Counter[str]] = {}
    total: Counter[str] = Counter()
    for name, each in layers(model).items():
        kind = name.rpartition(".")[2]
        total[kind] += 1
        w = each.weight.detach()
        w = w if w.is_cuda else w.float().numpy()
        kept = next((pattern for pattern in FAST if louver.check(w, pattern).ok), None)
        if kept is not None:
            found.setdefault(kind, Counter())[kept] += 1
    return {kind: {pattern: n / total[kind] for pattern, n in each.items()} for kind, each in found.items()}


def shown(case: Case) -> dict[str, Any]:
    return {
        **case.options,
        **({"allocate": case.budget} if case.budget else {}),
        **({"begins": case.begins} if case.begins else {}),
    }


def told(report: Any) -> dict[str, Any]:
    """What the record keeps of a report of `prune_`: the mean of the layers' errors, and the dampings."""
    errors = [row.error for row in report if getattr(row, "error", None)]
    dampings = [row.damping for row in report if getattr(row, "damping", None) is not None]
    found: dict[str, Any] = {}
    if errors:
        found["layer_error"] = round(math.exp(sum(map(math.log, errors)) / len(errors)), 6)
    if dampings:
        found["dampings"] = {f"{each:g}": dampings.count(each) for each in sorted(set(dampings))}
    warnings = getattr(report, "warnings", ())
    return {**found, **({"warnings": list(warnings)} if warnings else {})}


def rounded(x: Tensor) -> Tensor:
    """x in e4m3 with a scale for each row of the last axis, back in its type."""
    scale = (x.float().abs().amax(-1, keepdim=True) / 448).clamp_min(1e-12)
    return ((x.float() / scale).to(torch.float8_e4m3fn).float() * scale).to(x.dtype)


class rounded_products:
    """Rounds weights and inputs of a model's blocks to e4m3, within the context."""

    def __init__(self, model: nn.Module) -> None:
        self.layers = layers(model)

    def __enter__(self) -> None:
        for each in self.layers.values():
            each.weight.data = rounded(each.weight.data)
        self.hooks = [
            each.register_forward_pre_hook(lambda _, given: (rounded(given[0]),)) for each in self.layers.values()
        ]

    def __exit__(self, *_: object) -> None:
        for hook in self.hooks:
            hook.remove()


def in_e4m3(model: nn.Module) -> nn.Module:
    """The pruned model with its sparse layers in e4m3, as `quantize_` makes them."""
    made = copy.deepcopy(model).requires_grad_(False)
    louver.torch.compress_(made, patterns=FAST, force=True)
    louver.torch.quantize_(made, "e4m3")
    return made


def merged(paths: list[Path]) -> dict[str, Any]:
    """One record of several of one protocol and device. Raises ValueError for others."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    first = records[0]
    for path, each in zip(paths, records, strict=True):
        for name in ("device", "protocol", "model", "length", "calibration"):
            if each[name] != first[name]:
                raise ValueError(f"records of one {name} are merged, got {each[name]!r} in {path} and {first[name]!r}")
        differ = [text for text, facts in each["texts"].items() if first["texts"].get(text, facts) != facts]
        if differ:
            raise ValueError(f"records of the same texts are merged, got another {', '.join(differ)} in {path}")
    rows = {(row["pattern"], row["method"]): row for each in records for row in each["rows"]}
    missing = {name: why for each in records for name, why in each["missing"].items()}
    done = {f"{pattern} {method}" for pattern, method in rows}
    extras = {name: each[name] for each in records for name in ("layers", "choices") if name in each}
    return {
        **first,
        **extras,
        "texts": {name: facts for each in records for name, facts in each["texts"].items()},
        "missing": {n: w for n, w in missing.items() if n not in done},
        "rows": list(rows.values()),
    }


def write_all(path: Path, record: Mapping[str, Any]) -> None:
    """The record, its table and its picture."""
    write_record(path, record)
    read = read_accuracy(path)
    lines = accuracy_table(read).lines()
    path.with_suffix(".txt").write_text("".join(f"{line.rstrip()}\n" for line in lines), encoding="utf-8")
    if read.times:
        draw(path, path.with_suffix(".png"))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--parts", type=Path, nargs="+", default=[], help="folders of accuracy_prepare.py")
    parser.add_argument(
        "--stages",
        default="dense,basic,tuned,parts,distilled,half,speed,third,vectors",
        help=f"of {', '.join((*SPECIAL, *stages()))}",
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--budget", type=float, default=540, help="seconds, after which no row begins")
    parser.add_argument("--windows", type=int, default=240, help="most windows of a text")
    parser.add_argument("--length", type=int, default=1024, help="tokens of a window")
    parser.add_argument("--calibration", type=int, default=448, help="windows of real text for calibration")
    parser.add_argument(
        "--generate", type=int, default=1 << 20, help="tokens that the teacher writes for a distillation"
    )
    parser.add_argument("--share", type=float, default=1, help="of the minutes of distillation, to try the program")
    parser.add_argument("--keep", type=Path, help="a folder for pruned models, which other processes distil")
    parser.add_argument("--continue", type=Path, dest="resume", help="a record whose rows are not measured again")
    parser.add_argument("--merge", type=Path, nargs="+", help="records to put together")
    given = parser.parse_args()
    if given.merge:
        return write_all(given.out, merged(given.merge))
    unknown = set(given.stages.split(",")) - {*stages(), *SPECIAL}
    if unknown:
        parser.error(f"--stages has {', '.join(sorted(unknown))}, which is none of {', '.join((*SPECIAL, *stages()))}")
    if given.device.startswith("cuda"):
        torch.cuda.set_device(torch.device(given.device).index or 0)
    torch.manual_seed(0)
    study = Study(given)
    for name in given.stages.split(","):
        study.stage(name)
    return study.say(f"{len(study.rows)} rows; missing: {study.missing or 'none'}")


if __name__ == "__main__":
    main()
