"""Sort, count, reverse and pick in lists."""

from . import pools
from .item import Item, ask
from .source import Source


def _show(s: Source, items: list) -> str:
    return ", ".join(str(x) for x in items)


def _sort_numbers(s: Source) -> tuple[str, str]:
    items = s.r.sample(range(1, s.any([20, 100, 100])), s.number(3, 7))
    text = _show(s, items)
    if s.chance(0.6):
        return s.of([f"Sort these numbers: {text}", f"Sort from small to large: {text}",
                     f"Put these numbers in order: {text}", f"Order the numbers {text}.",
                     f"Sort the numbers {text}.", f"Sort in ascending order: {text}",
                     f"Arrange from smallest to largest: {text}", f"Please sort {text}.",
                     f"Write these numbers in ascending order: {text}",
                     f"Sort the following numbers: {text}"],
                    [f"Sort: {text}", f"From small to large, please: {text}", f"Order these numbers: {text}",
                     f"Give these numbers in rising order: {text}", f"List {text} from low to high.",
                     f"Start with the smallest: {text}", f"Bring {text} into order."]), _show(s, sorted(items))
    return s.of([f"Sort from large to small: {text}", f"Sort in descending order: {text}",
                 f"Arrange from largest to smallest: {text}",
                 f"Put these numbers in descending order: {text}",
                 f"Sort the numbers from large to small: {text}"],
                [f"Order from high to low: {text}", f"Give these numbers in falling order: {text}",
                 f"Start with the largest: {text}", f"List the numbers {text}, the biggest first.",
                 f"Sort these numbers, largest first: {text}", f"From big to small: {text}",
                 f"Order the numbers from largest to smallest: {text}",
                 f"Sort {text} in descending order."]), _show(s, sorted(items, reverse=True))


def _sort_words(s: Source) -> tuple[str, str]:
    words: dict[str, str] = {}
    for word in map(s.word, s.shuffled(pools.WORDS)):
        words.setdefault(word[0], word)  # first letters differ
        if len(words) == 12:
            break
    items = list(words.values())[:s.number(3, 6)]
    text = _show(s, items)
    return s.of([f"Sort these words alphabetically: {text}", f"Put these words in alphabetical order: {text}",
                 f"Sort from A to Z: {text}", f"Arrange the words in alphabetical order: {text}",
                 f"Sort the words alphabetically: {text}"],
                [f"Order these words by the alphabet: {text}", f"Alphabetical order, please: {text}",
                 f"Arrange from A to Z: {text}", f"Sort this list of words: {text}"]), _show(s, sorted(items))


def _words(s: Source, low: int, high: int) -> list[str]:
    return [s.word(w) for w in s.some(pools.WORDS, s.number(low, high))]


def _count(s: Source) -> tuple[str, str]:
    items = _words(s, 2, 9)
    text = _show(s, items)
    return s.of([f"How many items are in this list: {text}?", f"Count the words: {text}",
                 f"How many words are there? {text}", f"Count these: {text}",
                 f"How many words are in this list: {text}?"],
                [f"Tell me how many words these are: {text}", f"Count the items: {text}", f"How many? {text}",
                 f"How long is this list: {text}?", f"Give the number of words in {text}."]), f"{len(items)}"


def _occurrences(s: Source) -> tuple[str, str]:
    word, *others = [s.word(w) for w in s.some(pools.WORDS, 3)]
    items = [word] * s.number(1, 5) + [s.any(others) for _ in range(s.number(1, 4))]
    text = " ".join(s.shuffled(items))
    return s.of([f'How often does "{word}" occur in: {text}', f'Count the word "{word}" in: {text}',
                 f'How many times is "{word}" in this text: {text}',
                 f'How many times does the word "{word}" appear? {text}',
                 f'How often is the word "{word}" in this text: {text}'],
                [f'How often do you see "{word}" here: {text}', f'Count "{word}": {text}',
                 f'How many times does this text say "{word}": {text}', f'In this text, count {word}: {text}',
                 f'How often is {word} written here? {text}',
                 f'The word "{word}": how often is it in {text}?']), f"{items.count(word)}"


def _reverse(s: Source) -> tuple[str, str]:
    items = _words(s, 3, 6)
    text = _show(s, items)
    return s.of([f"Reverse this list: {text}", f"Write this list backwards: {text}",
                 f"Give the list in reverse order: {text}", f"Turn the list around: {text}",
                 f"Reverse the list {text}."],
                [f"Reverse: {text}", f"Reverse {text}.", f"From last to first: {text}",
                 f"Write {text} in reverse order.", f"The list {text}, backwards please.",
                 f"Read this list from the end: {text}"]), _show(s, items[::-1])


def _pick(s: Source) -> tuple[str, str]:
    if s.chance(0.5):
        items = s.r.sample(range(1, 100), s.number(3, 7))
        text = _show(s, items)
        if s.chance(0.5):
            return s.of([f"What is the largest number: {text}?", f"Which is the biggest of {text}?",
                         f"Find the maximum: {text}", f"Give the largest of {text}.",
                         f"Which number is the largest: {text}?"],
                        [f"The largest of {text}?", f"Name the highest number: {text}", f"Maximum of {text}?",
                         f"Tell me the greatest of {text}."]), f"{max(items)}"
        return s.of([f"What is the smallest number: {text}?", f"Which is the least of {text}?",
                     f"Find the minimum: {text}", f"Give the smallest of {text}.",
                     f"Which number is the smallest: {text}?"],
                    [f"The smallest of {text}?", f"Name the lowest number: {text}", f"Minimum of {text}?",
                     f"Tell me the least of {text}."]), f"{min(items)}"
    items = _words(s, 3, 7)
    text = _show(s, items)
    place = s.any(["first", "second", "third", "last"])
    index = {"first": 0, "second": 1, "third": 2, "last": -1}[place]
    return s.of([f"What is the {place} word of this list: {text}?", f"Give the {place} item: {text}",
                 f"Which word comes {place} in: {text}?", f"Take the {place} word of {text}.",
                 f"Which is the {place} word of this list: {text}?"],
                [f"Tell me the {place} of these: {text}", f"The {place} word of {text}?",
                 f"Pick the {place} one: {text}"]), items[index]


def _unique(s: Source) -> tuple[str, str]:
    items = _words(s, 2, 4)
    doubled = items + [s.any(items) for _ in range(s.number(1, 3))]
    doubled = items[:1] + s.shuffled(doubled[1:])
    text = _show(s, doubled)
    return s.of([f"Remove the duplicates: {text}", f"Write each word once: {text}",
                 f"Drop repeated words from this list: {text}", f"List every word only once: {text}",
                 f"Remove the duplicates from this list: {text}"],
                [f"Without repeats: {text}", f"Each word only once, please: {text}",
                 f"Delete the repeated words: {text}", f"Which different words are here: {text}"]), \
        _show(s, list(dict.fromkeys(doubled)))


def _filter(s: Source) -> tuple[str, str]:
    items = _words(s, 3, 6)
    gone = s.any(items)
    text, rest = _show(s, items), _show(s, [x for x in items if x != gone])
    return s.of([f"Remove {gone} from this list: {text}", f"Take {gone} out of the list {text}.",
                 f"Delete {gone} from: {text}", f"Write the list without {gone}: {text}",
                 f"Remove the word {gone} from the list: {text}"],
                [f"Drop {gone}: {text}", f"Leave out {gone}: {text}", f"Remove the item {gone}: {text}",
                 f"Delete the word {gone} in this list: {text}", f"Strike {gone} from the list {text}.",
                 f"The list without the word {gone}: {text}", f"Cross out {gone} in {text}."]), rest


def lists_item(s: Source) -> Item:
    make = s.any([_sort_numbers, _sort_numbers, _sort_words, _count, _occurrences, _reverse, _pick,
                  _unique, _filter])
    return ask("lists", *make(s))
