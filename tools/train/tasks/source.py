"""Random choices of a generator, and the rule that keeps training and test apart.

Every list of wordings or values with at least five entries is split: each fifth entry belongs to
the test generators, the others to training, with more wordings of its own (`of`). So a test item has
wordings and values that training never shows, though it may show one that differs by a word.

A list of thirty jobs is soon known by heart, and then a job is chosen instead of copied. So half the
values of training are words of the corpus, thousands of them (`learn_words`).
"""

import collections
import random
import re
import string
from types import ModuleType

CONSONANTS = "b d f g h k l m n p r s t v z br dr gr kl st tr".split()
VOWELS = "a e i o u a e i o ia ea".split()
ENDINGS = "s er el et en an on ing ed y o a ish ley sen by ton".split()
WORDS: list[str] = []  # words of the corpus, for values of training
RESERVED = {"find", "name", "names"}  # alone before a value or a thing, these are wordings of the test side
SPELLED: list[str] = []  # all of them and those of the vocabulary, for spelling.py alone


def learn_words(texts: list[str], modules: list[ModuleType], tokens: list[str], skip: int = 150,
                most: int = 8000) -> None:
    """The frequent words of the texts but the commonest, and but what the modules keep for tests. To be
    spelled: these, and the vocabulary's `tokens` that begin a word."""
    counts = collections.Counter(w for text in texts for w in re.findall(r"\b[a-z]{3,11}\b", text))
    lists = [entries for module in modules for name, entries in vars(module).items()
             if name.isupper() and isinstance(entries, list)]
    tests = {(e if isinstance(e, str) else e[0]).lower() for entries in lists for e in entries[4::5]
             if isinstance(e, (str, tuple))}
    ranked = [word for word, _ in counts.most_common(skip + most)[skip:]]
    SPELLED[:] = [t[1:] for t in tokens if re.fullmatch(r"\u0120[A-Za-z][a-z]+", t)]
    SPELLED.extend(word for word, _ in collections.Counter(
        w for text in texts for w in re.findall(r"\b[A-Za-z][a-z]{1,11}\b", text)).most_common(2 * most))
    WORDS[:] = [word for word in ranked if word not in tests | RESERVED]


class Source:

    def __init__(self, seed, test: bool = False):
        self.r = random.Random(seed)
        self.test = test

    def of(self, entries, more=()):
        """One entry of this side's part of the list; `more` are training's alone, with "~" for any words."""
        if more and not self.test and self.chance(len(more) / (len(more) + len(entries))):
            return self.filled(self.any(more))
        count = len(entries)
        if count < 5:
            return entries[int(self.r.random() * count)]
        if self.test:
            return entries[4 + 5 * int(self.r.random() * (count // 5))]
        index = int(self.r.random() * (count - count // 5))
        return entries[index + index // 4]

    def some(self, entries, count: int) -> list:
        """`count` different entries of this side's part."""
        if len(entries) >= 5:
            entries = [e for i, e in enumerate(entries) if (i % 5 == 4) == self.test]
        return self.r.sample(entries, count)

    def any(self, entries):
        """One entry of the whole list, for closed sets (months, units) that both sides share."""
        return entries[int(self.r.random() * len(entries))]

    def chance(self, share: float) -> bool:
        return self.r.random() < share

    def number(self, low: int, high: int) -> int:
        return low + int(self.r.random() * (high - low + 1))

    def shuffled(self, entries) -> list:
        entries = list(entries)
        self.r.shuffle(entries)
        return entries

    def word(self, usual: str) -> str:
        """`usual` or, in training, as often a word of the corpus: to be copied, not known."""
        if self.test or not WORDS or self.chance(0.5):
            return usual
        word = self.any(WORDS)
        if self.chance(0.15):
            word = self.changed(word)
        return word.capitalize() if usual[0].isupper() else word

    def words(self, low: int, high: int) -> str:
        """Any words of the corpus: a wording that says nothing, for training."""
        if self.test or not WORDS:
            return ""
        return " ".join(self.any(WORDS) for _ in range(self.number(low, high)))

    def filled(self, text: str) -> str:
        """Each "~" as a few words of the corpus, for training."""
        while "~" in text:
            text = text.replace("~", self.words(1, 3) or "now", 1)
        return text

    def changed(self, word: str) -> str:
        """Almost the word, so that a copy needs all of it."""
        place = self.number(1, len(word) - 1)
        return self.any([word + self.any(ENDINGS), word[:place], word[:place] + word[place:][1:],
                         word[:place] + word[place - 1] + word[place:],
                         word[:place] + self.any(string.ascii_lowercase) + word[place:]])

    def made_up(self) -> str:
        """A new name: copying must not depend on known words."""
        text = "".join(self.any(CONSONANTS) + self.any(VOWELS) for _ in range(self.number(2, 3)))
        return (text + self.any(["", "", "n", "r", "s", "l"])).capitalize()

    def code(self) -> str:
        letters = "".join(self.any(string.ascii_uppercase) for _ in range(self.number(1, 2)))
        return f"{letters}-{self.number(10, 9999)}"


def join_words(words: list[str], last: str = "and") -> str:
    if len(words) == 1:
        return words[0]
    return ", ".join(words[:-1]) + f" {last} " + words[-1]
