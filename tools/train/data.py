"""Training rows: token rows of one length, with the length of their prompt, and their sources."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor


@dataclass
class Rows:
    """tokens [rows, length] int32; prompt [rows] int32: tokens the target did not write itself;
    end [rows] int32: where its answer ends (the rest of the row does not count).

    Rows are kept in the order of their source text, so that the last ones are unseen text.
    """
    tokens: Tensor
    prompt: Tensor
    end: Tensor | None = None

    def __post_init__(self):
        if self.end is None:
            self.end = torch.full_like(self.prompt, self.tokens.shape[1])

    def __len__(self) -> int:
        return self.tokens.shape[0]

    @property
    def length(self) -> int:
        return self.tokens.shape[1]

    def to(self, device: str) -> "Rows":
        return Rows(self.tokens.to(device), self.prompt.to(device), self.end.to(device))

    def select(self, index: Tensor | slice) -> "Rows":
        return Rows(self.tokens[index], self.prompt[index], self.end[index])

    def split(self, held_out: int) -> tuple["Rows", "Rows"]:
        """Training rows, and the last `held_out` rows."""
        edge = len(self) - held_out
        return self.select(slice(0, edge)), self.select(slice(edge, None))


def save_rows(rows: dict[str, Rows], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, part in rows.items():
        save_file({"tokens": part.tokens.int().cpu().contiguous(),
                   "prompt": part.prompt.int().cpu().contiguous(),
                   "end": part.end.int().cpu().contiguous()},
                  directory / f"{name}.safetensors")


def load_rows(directory: Path) -> dict[str, Rows]:
    parts = {}
    for path in sorted(directory.glob("*.safetensors")):
        tensors = load_file(path)
        parts[path.stem] = Rows(tensors["tokens"], tensors["prompt"], tensors.get("end"))
    return parts


def read_texts(paths: list[str], tokenizer) -> list[str]:
    """Documents of .txt files (one each) and .jsonl files (one a line).

    A line has `text`, or `prompt` with an optional `response`, or `messages` / `conversations`
    for the chat template.
    """
    texts = []
    for path in sorted(paths):
        content = Path(path).read_text(encoding="utf-8", errors="replace")
        if path.endswith(".jsonl"):
            lines = (json.loads(line) for line in content.splitlines() if line.strip())
            texts.extend(_line_text(line, tokenizer) for line in lines)
        else:
            texts.append(content)
    return texts


def _line_text(line: dict, tokenizer) -> str:
    if "text" in line:
        return line["text"]
    if "prompt" in line:
        return line["prompt"] + line.get("response", "")
    roles = {"human": "user", "gpt": "assistant"}
    messages = [{"role": roles.get(m.get("from"), m.get("role") or m.get("from")),
                 "content": m.get("content", m.get("value"))}
                for m in line.get("messages") or line["conversations"]]
    return tokenizer.apply_chat_template(messages, tokenize=False)


def token_stream(texts: list[str], tokenizer) -> Tensor:
    """All documents in one int32 stream, each between the begin and end tokens it has."""
    begin, end = tokenizer.bos_token_id, tokenizer.eos_token_id
    stream: list[int] = []
    for ids in tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]:
        stream += [begin] * (begin is not None) + ids + [end] * (end is not None)
    return torch.tensor(stream, dtype=torch.int32)


def windows(stream: Tensor, count: int, length: int, begin: int | None,
            generator: torch.Generator) -> Tensor:
    """`count` random windows [count, length], in stream order, each after a begin token."""
    body = length - (begin is not None)
    if len(stream) < body:
        raise SystemExit(f"data: {len(stream)} tokens, fewer than one row of {length}")
    starts = torch.randint(0, len(stream) - body + 1, (count,), generator=generator).sort().values
    rows = stream[starts[:, None] + torch.arange(body)]
    if begin is not None:
        rows = torch.cat([torch.full((count, 1), begin, dtype=rows.dtype), rows], 1)
    return rows


def cut_at_line_end(tokens: Tensor, cuts: Tensor, line_end: Tensor, limit: int) -> Tensor:
    """Moves each cut to just after the next token that ends a line, if one comes before `limit`.

    tokens [rows, length], cuts [rows]; line_end [vocab] bool. Prompts end at lines more often
    than inside words.
    """
    index = torch.arange(tokens.shape[1])
    ends = line_end[tokens.long()] & (index >= cuts[:, None] - 1) & (index < limit)
    first = torch.where(ends, index, tokens.shape[1]).min(1).values + 1
    return torch.where(first <= limit, first, cuts)


def line_end_tokens(tokenizer, vocab: int) -> Tensor:
    """[vocab] bool: tokens whose text ends with a line break."""
    texts = tokenizer.batch_decode([[i] for i in range(vocab)])
    return torch.tensor([text.endswith("\n") for text in texts])


def without_prompts(tokens: Tensor, excluded: list[list[int]]) -> Tensor:
    """[rows] bool: rows that do not begin (after the begin token) with one of the token lists."""
    keep = torch.ones(tokens.shape[0], dtype=torch.bool)
    for ids in excluded:
        if len(ids) < tokens.shape[1]:
            keep &= (tokens[:, 1:1 + len(ids)] != torch.tensor(ids)).any(1)
    return keep
