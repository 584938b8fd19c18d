#!/usr/bin/env python3
"""docs/flags.md names the commands that take a setting: their help must agree.

    tests/flags_page_test.py PROGRAM
"""

import re
import sys
import unittest

sys.dont_write_bytecode = True
from cli import ROOT, main, talon  # noqa: E402

WITH_GRPC = {"bench remote"}  # commands that builds without gRPC lack
OWN = {"chat": {"--api-key"}}  # flags of a command that another's setting is named like


def read_page():
    """{command: flags that the page gives it}, and all flags."""
    flags_of, all_flags = {}, set()
    page = (ROOT / "docs" / "flags.md").read_text(encoding="utf-8")
    for section in page.split("\n## ")[1:]:
        commands = re.findall(r"`([^`]+)`", re.search(r"Taken by ([^.]*)", section)[1])
        commands = [" ".join(command.split()) for command in commands]  # a line may end inside
        entries = re.findall(r"(?m)^- (`--[^(]*)\(", section)
        flags = {name for entry in entries for name in re.findall(r"`(--[a-z0-9-]+)`", entry)}
        all_flags |= flags
        for command in commands:
            flags_of.setdefault(command, set()).update(flags)
    return flags_of, all_flags


def flags_in_help(command):
    """None: this build lacks the command."""
    text = talon(*command.split(), "--help").stdout.decode()
    if f"talon {command} " not in text:
        return None
    names = re.findall(r"(?m)^ +((?:-\w,)?--[a-z0-9,-]+)", text)
    return {flag for each in names for flag in each.split(",") if flag.startswith("--")}


class FlagsPage(unittest.TestCase):
    def test_commands_take_the_flags_that_the_page_gives_them(self):
        flags_of, all_flags = read_page()
        self.assertIn("run", flags_of)
        for command, flags in flags_of.items():
            with self.subTest(command=command):
                shown = flags_in_help(command)
                if shown is None and command in WITH_GRPC:
                    continue
                self.assertIsNotNone(shown)
                self.assertEqual(flags - shown, set())
                self.assertEqual((shown & all_flags) - flags, OWN.get(command, set()))


if __name__ == "__main__":
    main()
