"""Checks the parts that can be wrong without failing: chain attention, its gradient, the decoder.

usage: selfcheck.py --target DIR
"""

import argparse

import torch

from attention import dense_chain, FlashChain
from data import Rows
from decoder import LockstepDecoder
from target import Target


def check_attention() -> None:
    """The flash path against the dense twin in float64, values and gradients."""
    shape = (2, 4, 300, 64)
    tensors = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    tensors += [torch.randn(3, *shape, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    upstream = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    fast = [x.clone().requires_grad_() for x in tensors]
    slow = [x.double().requires_grad_() for x in tensors]
    fast_out, slow_out = FlashChain.apply(*fast), dense_chain(*slow)
    fast_out.backward(upstream)
    slow_out.backward(upstream.double())
    pairs = [(fast_out, slow_out)] + [(f.grad, s.grad) for f, s in zip(fast, slow)]
    for got, want in pairs:
        error = ((got.double() - want).norm() / want.norm()).item()
        assert error < 1e-2, f"chain attention: relative error {error:.2e}"
    print("chain attention: values and gradients agree with the dense twin")


def check_decoder(target: Target) -> None:
    """Greedy rows must be what the teacher says is its first choice, near-ties aside."""
    vocab = target.config.vocab_size
    for length, prompt in ((96, 5), (700, 600)):
        tokens = torch.randint(0, vocab, (8, length), dtype=torch.int32, device=target.device)
        rows = Rows(tokens, torch.full((8,), prompt, dtype=torch.int32, device=target.device))
        out = LockstepDecoder(target, 8, length).run(rows, torch.zeros(8, device=target.device))
        assert (out[:, :prompt] == tokens[:, :prompt]).all(), "the decoder changed a prompt"
        _, hidden = target.teach(out.long())
        first = target.logits(hidden).argmax(-1)
        agree = (first[:, prompt - 1:-1] == out[:, prompt:]).float().mean().item()
        assert agree > 0.95, f"decoder: only {agree:.1%} of {length}-token rows is greedy"
        print(f"decoder: {agree:.1%} of the {length}-token rows is the teacher's first choice")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", required=True)
    args = parser.parse_args()
    check_attention()
    check_decoder(Target(args.target, "cuda"))


if __name__ == "__main__":
    main()
