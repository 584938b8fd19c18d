"""Self-generation: the rows a head should learn from are the ones its target writes.

Speculation happens on the target's own output, so that is the text whose next tokens the head
must guess: greedy continuations, loops included, for greedy decoding, and samples at several
temperatures for the rest. Prompts come from the target too (begin token, seed prompts) and from
`--data` where given.
"""

import time
from dataclasses import dataclass, field

import torch
from torch import Tensor

from data import Rows, cut_at_line_end, line_end_tokens, windows, without_prompts
from decoder import LockstepDecoder
from target import Target


@dataclass
class GenerateOptions:
    batch: int = 4096  # rows in lockstep, at `row` tokens each
    rows: int = 16384  # greedy rows of each kind
    row: int = 512  # tokens of a short row
    sample_row: int = 1024
    medium_row: int = 1536
    long_rows: dict[int, int] = field(default_factory=dict)  # row length -> number of rows
    tail: int = 384  # tokens written after a medium or long prompt
    temperatures: tuple[float, ...] = (0.7, 0.85, 1.0)
    seed_prompts: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    seed: int = 0


class SelfGenerator:

    def __init__(self, target: Target, options: GenerateOptions, stream: Tensor | None):
        self._target, self._options, self._stream = target, options, stream
        self._begin = target.tokenizer.bos_token_id
        self._line_end = line_end_tokens(target.tokenizer, target.config.vocab_size)
        self._excluded = [target.tokenizer(text, add_special_tokens=False)["input_ids"]
                          for text in options.excluded]
        self._random = torch.Generator().manual_seed(options.seed)
        torch.manual_seed(options.seed)

    def run(self) -> dict[str, Rows]:
        options = self._options
        parts = {"samples": self._samples()}
        parts["greedy"] = self._greedy(parts["samples"].tokens, options.row)
        for index, text in enumerate(options.seed_prompts):
            parts[f"seeded-{index}"] = self._seeded(text)
        # One stream of everything, as a target sees packed documents, serves where no data is.
        stream = self._stream if self._stream is not None else parts["samples"].tokens.flatten()
        if self._stream is not None:
            source = windows(stream, options.rows, options.row, self._begin, self._random)
            parts["data"] = self._greedy(source, options.row)
        lengths = {options.medium_row: options.rows // 8, **options.long_rows}
        for length, count in lengths.items():
            source = windows(stream, count, length, self._begin, self._random)
            parts[f"tail-{length}"] = self._tail(source)
        return parts

    def _samples(self) -> Rows:
        options = self._options
        count = options.rows // 2
        tokens = torch.full((count, options.sample_row), self._begin or 0, dtype=torch.int32)
        temperature = torch.tensor(options.temperatures).repeat(count)[:count]
        rows = self._write("samples", Rows(tokens, torch.ones(count, dtype=torch.int32)),
                           temperature)
        return rows.select(without_prompts(rows.tokens, self._excluded))

    def _greedy(self, source: Tensor, length: int) -> Rows:
        """Greedy continuations of prompts cut from `source` rows, most of them short."""
        count = self._options.rows
        index = torch.arange(count) * source.shape[0] // count
        tokens = source[index, :length].clone()
        spread = torch.rand(count, generator=self._random)
        cuts = (8 * (length / 2 / 8) ** spread).long()
        aligned = cut_at_line_end(tokens, cuts, self._line_end, length // 2)
        cuts = torch.where(torch.rand(count, generator=self._random) < 0.5, aligned, cuts)
        return self._write("greedy", Rows(tokens, cuts.int()))

    def _seeded(self, text: str) -> Rows:
        """Samples openings after a seed prompt, cuts them at line ends and continues greedily."""
        count, head = self._options.rows, 64
        ids = self._target.tokenizer(text, add_special_tokens=False)["input_ids"]
        ids = [self._begin] * (self._begin is not None) + ids
        tokens = torch.zeros(count, head, dtype=torch.int32)
        tokens[:, :len(ids)] = torch.tensor(ids, dtype=torch.int32)
        prompt = torch.full((count,), len(ids), dtype=torch.int32)
        openings = self._write("openings", Rows(tokens, prompt), torch.ones(count)).tokens
        openings = openings[without_prompts(openings, self._excluded)]
        tokens = torch.zeros(openings.shape[0], self._options.row, dtype=torch.int32)
        tokens[:, :head] = openings
        cuts = torch.randint(len(ids) + 4, head // 2, (len(tokens),), generator=self._random)
        cuts = cut_at_line_end(openings, cuts, self._line_end, head)
        return self._write("seeded", Rows(tokens, cuts.int()))

    def _tail(self, source: Tensor) -> Rows:
        prompt = torch.full((source.shape[0],), source.shape[1] - self._options.tail)
        return self._write("tail", Rows(source.clone(), prompt.int()))

    def _write(self, name: str, rows: Rows, temperature: Tensor | None = None) -> Rows:
        """Completes the rows in batches whose cache is about the size of `batch` short rows."""
        options, device, started = self._options, self._target.device, time.time()
        batch = max(1, min(len(rows), options.batch * options.row // rows.length))
        if temperature is None:
            temperature = torch.zeros(len(rows))
        decoder = LockstepDecoder(self._target, batch, rows.length)
        done = []
        for first in range(0, len(rows), batch):
            index = torch.arange(first, first + batch) % len(rows)  # a short last batch wraps
            done.append(decoder.run(rows.select(index).to(device),
                                    temperature[index].to(device)).cpu())
        tokens = torch.cat(done)[:len(rows)]
        seconds = time.time() - started
        print(f"generate {name}: {len(rows)} x {rows.length} tokens in {seconds:.1f} s "
              f"({tokens.numel() / seconds / 1e3:.0f}k tokens/s)", flush=True)
        return Rows(tokens, rows.prompt)
