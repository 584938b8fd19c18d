"""Drafters written in Python."""

from abc import ABC, abstractmethod

from talon._talon import Budget, TokenTree


class DrafterWarning(RuntimeWarning):
    """A Python drafter failed; its sequence was decoded plainly from there on."""


class Drafter(ABC):
    """Proposes tokens for the engine to verify; subclass it and give an instance to `Engine`.

        class Repeat(talon.Drafter):
            def propose(self, tokens, budget):
                tree = talon.TokenTree(tokens[-1])
                tree.add(parent=0, token=tokens[-1], prob=0.1)
                return tree

    What is proposed never changes the text, only the speed. The methods are called on the engine's
    thread, between passes: while they run, nothing else does. A drafter that raises, or returns
    something else than a tree, is not asked again for that sequence, which is decoded plainly; the
    caller gets a DrafterWarning.

    `SpeculativeConfig(adaptive=False)` has every proposal verified; otherwise the engine trims
    trees by `probs` to what pays on this machine. `num_steps` and `num_draft_tokens` set the
    budget.
    """

    @abstractmethod
    def propose(self, tokens: list[int], budget: Budget) -> TokenTree | None:
        """The tree to verify after `tokens`, all tokens of the sequence so far.

        Its root is the last of them. None proposes nothing. Nodes beyond the budget are cut.
        """

    def begin(self, sequence: int, prompt: list[int]) -> None:
        """A new sequence, before its prompt is computed."""

    def observe(self, sequence: int, tokens: list[int]) -> None:
        """Tokens that a step has added to the sequence."""

    def rewind(self, sequence: int, length: int) -> None:
        """The sequence now has only its first `length` tokens (SpecPV takes some back)."""

    def end(self, sequence: int) -> None:
        """The sequence is gone."""
