#!/usr/bin/env python3
"""Tests of check_words.py on small made-up files and subjects."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
import check_words  # noqa: E402


def problems_of(name, *lines):
    problems = check_words.check_file(name, "\n".join(lines) + "\n")
    return [problem.removeprefix(f"{name}:") for problem in problems]


class CommentTest(unittest.TestCase):
    def test_plain_comments_pass(self):
        self.assertEqual(problems_of("a.cc", "// Checks the raw logits.", "int of = 1;"), [])
        self.assertEqual(problems_of("a.py", '"""The tests."""', "x = 1  # the first"), [])

    def test_headless_opening_names_the_line(self):
        expected = ['2: a comment opens with a headless "Of"']
        self.assertEqual(problems_of("a.h", "int x;", "// Of the row."), expected)
        self.assertEqual(problems_of("a.h", "", "int x;  // Of the row."), expected)
        self.assertEqual(problems_of("a.sh", "x=1", "# Of the row."), expected)
        self.assertEqual(problems_of("a.py", "def f():", '    """Of the row."""'), expected)

    def test_all_headless_words(self):
        for word in ("Whose", "That"):
            self.assertEqual(len(problems_of("a.cu", f"// {word} parts are few.")), 1, word)

    def test_headless_comment_beside_a_declaration(self):
        expected = ['1: a comment opens with a headless "of"']
        self.assertEqual(problems_of("a.h", "int rows = 0;  // of the pass"), expected)
        self.assertEqual(problems_of("a.py", "rows = 0  # of the pass"), expected)
        self.assertEqual(problems_of("a.h", "int rows = 0;  // rows of the pass"), [])

    def test_a_later_line_of_a_comment_may_begin_with_of(self):
        self.assertEqual(problems_of("a.cc", "// The sum", "// Of Mice and Men."), [])

    def test_strings_are_not_comments(self):
        self.assertEqual(problems_of("a.cc", 'auto s = "// Of all, nobody";'), [])
        self.assertEqual(problems_of("a.cc", 'auto s = R"x(// Of all", nobody)x";'), [])
        self.assertEqual(problems_of("a.py", 'x = "# nobody is no one"'), [])


class IsNoTest(unittest.TestCase):
    def test_is_no_for_is_not_a(self):
        expected = ['1: "is no": write "is not a"']
        self.assertEqual(problems_of("a.cc", "// It is no number."), expected)
        self.assertEqual(len(problems_of("a.cc", "// Logits that are no numbers.")), 1)
        self.assertEqual(len(problems_of("a.md", "A line that is no prose.")), 1)

    def test_good_english_passes(self):
        for text in ("There is no tokenizer.", "It is no longer so.", "They are no more than 3."):
            self.assertEqual(problems_of("a.cc", f"// {text}"), [], text)


class PeopleWordTest(unittest.TestCase):
    def test_in_comments(self):
        self.assertEqual(
            problems_of("a.cc", "// Nobody reads it."), ['1: "Nobody" is a word for people']
        )

    def test_in_names(self):
        for name in ("kHopeless", "BelievedSeconds", "a_wish", "TokenNarrator"):
            self.assertEqual(len(problems_of("a.cc", f"int {name} = 0;")), 1, name)

    def test_parts_of_other_words_pass(self):
        for name in ("NewScratch", "recommend", "amends", "moody"):
            self.assertEqual(problems_of("a.cc", f"int {name} = 0;"), [], name)

    def test_code_in_prose_passes(self):
        self.assertEqual(problems_of("a.md", "`nobody` is a user.", "```", "nobody", "```"), [])

    def test_home_made_terms(self):
        problems = problems_of("a.cuh", "// Fetched by the copy engine.")
        self.assertEqual(problems, ['1: "copy engine": write "TMA"'])


class OpenCodedTest(unittest.TestCase):
    def test_ceil_division_has_a_name(self):
        for code in (
            "int x = (a + b - 1) / b;",
            "int x = (n * heads + tile.rows - 1) / tile.rows * tile.rows;",
            "auto x = (bytes + sizeof(T) - 1) / sizeof(T);",
            "const int blocks =\n    (tokens + kBlock - 1) /\n    kBlock;",
        ):
            problems = check_words.check_file("a.cu", code)
            self.assertEqual(len(list(problems)), 1, code)

    def test_other_quotients_pass(self):
        for code in ("(a + b) / b", "(a + b - 1) / c", "(a + b - 1) / bb", "CeilDiv(a + 1, b)"):
            self.assertEqual(problems_of("a.cc", f"int x = {code};"), [], code)

    def test_the_definition_passes(self):
        self.assertEqual(problems_of(check_words.CEIL_HOME, "return (a + b - 1) / b;"), [])


class FolderTest(unittest.TestCase):
    def test_files_are_counted_for_their_module(self):
        self.assertEqual(check_words.folder_of("README.md"), ".")
        self.assertEqual(check_words.folder_of("tests/page/a.py"), "tests")
        self.assertEqual(check_words.folder_of("src/compute/cuda/a.cu"), "src/compute")

    def test_too_many_files(self):
        names = [f"src/kv/{i}.cc" for i in range(check_words.MAX_FILES)]
        self.assertEqual(list(check_words.check_folders(names)), [])
        problems = list(check_words.check_folders([*names, "src/kv/one_more.cc"]))
        self.assertEqual(problems, [("src/kv", "src/kv: 41 files, limit 40")])

    def test_problems_are_sorted_by_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name in ("src/kv/a.cc", "src/spec/b.h"):
                (root / name).parent.mkdir(parents=True)
                (root / name).write_text("// Of the row.\n")
            problems = check_words.check_tree(root)
        self.assertEqual(sorted(problems), ["src/kv", "src/spec"])


class SubjectTest(unittest.TestCase):
    def test_imperatives_pass(self):
        for subject in ("Fix attention spans for 48 sequences", "Embed the page", "Bring it back"):
            self.assertIsNone(check_words.problem_of_subject(subject), subject)

    def test_other_moods_do_not(self):
        for subject in ("Fixed the spans", "Fixing the spans", "Fix the spans.", "Fix" + "x" * 70):
            self.assertIsNotNone(check_words.problem_of_subject(subject), subject)

    def test_limit_is_72_characters(self):
        self.assertIsNone(check_words.problem_of_subject("Fix " + "x" * 68))
        self.assertIsNotNone(check_words.problem_of_subject("Fix " + "x" * 69))

    def test_only_named_commits_are_excused(self):
        subject = "Fix " + "x" * 69
        excused = next(iter(check_words.EXCUSED_COMMITS))
        self.assertIsNone(check_words.problem_of_commit(excused + "0" * 32, subject))
        self.assertIsNotNone(check_words.problem_of_commit("0" * 40, subject))


if __name__ == "__main__":
    unittest.main()
