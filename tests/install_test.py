"""An installed program: finds its models from any directory, has a manual page and completion.

Usage: install_test.py PATH_OF_TALON [unittest arguments]
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True  # leaves nothing beside the sources
from cli import ROOT, TIMEOUT_S, main, program, talon  # noqa: E402

PREFIX = "/opt/talon"


def run(*command, **options):
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        **options
    )


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Into a DESTDIR, as a packager does."""
        build = pathlib.Path(program()).parent
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        made = run("cmake", "--build", build, "--target", "manual")
        assert made.returncode == 0, made.stdout + made.stderr
        cls.elsewhere = pathlib.Path(directory.name)
        cls.prefix = cls.elsewhere / "dest" / PREFIX[1:]
        environment = {**os.environ, "DESTDIR": str(cls.elsewhere / "dest")}
        made = run("cmake", "--install", build, "--prefix", PREFIX, env=environment)
        assert made.returncode == 0, made.stdout + made.stderr

    def installed(self, *args):
        return run(self.prefix / "bin" / "talon", *args, cwd=self.elsewhere)

    def test_finds_its_models_from_another_directory(self):
        for flags in ([], ["--speculative-algorithm", "EAGLE3"]):
            result = self.installed("run", "-n", 4, *flags)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(str(self.prefix / "share/talon/models/tiny"), result.stderr)

    def test_finds_the_tasks_from_another_directory(self):
        result = self.installed("bench", "tasks", "--kinds", "json", "--limit", 1)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"(?m)^json +[01] +1 ")

    def test_a_copy_of_the_program_says_what_it_lacks(self):
        copy = self.elsewhere / "copy" / "bin"
        copy.mkdir(parents=True)
        shutil.copy(self.prefix / "bin" / "talon", copy)
        result = run(copy / "talon", "run", cwd=self.elsewhere)
        self.assertEqual(result.returncode, 2)
        for part in ("models/tiny", self.elsewhere / "copy/share/talon", "--model DIR"):
            self.assertIn(str(part), result.stderr)

    @unittest.skipUnless(shutil.which("man") and shutil.which("lexgrog"), "needs man-db")
    def test_manual_page_where_man_is_installed(self):
        page = self.prefix / "share/man/man1/talon.1"
        self.assertIn("talon - exact speculative decoding", run("lexgrog", page).stdout)
        shown = run("man", "--warnings", "-E", "UTF-8", "-l", page,
                    env={**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8"})
        self.assertEqual((shown.returncode, shown.stderr), (0, ""))
        text = re.sub(r".\x08", "", shown.stdout)
        flags = re.findall(r"(?m)^ +(?:-\w,)?(--[a-z0-9-]+)", talon("serve", "--help").stdout.decode())
        self.assertGreater(len(flags), 40)
        for flag in flags:
            self.assertIn(flag, text)

    def complete(self, *words):
        """What bash offers for the last word."""
        script = self.prefix / "share/bash-completion/completions/talon"
        line = " ".join(f"'{word}'" for word in words)
        done = run("bash", "-c", f"source {script} && COMP_WORDS=({line}) && "
                   f"COMP_CWORD={len(words) - 1} && _talon && printf '%s\\n' \"${{COMPREPLY[@]}}\"",
                   cwd=ROOT)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.split()

    @unittest.skipUnless(shutil.which("bash"), "needs bash")
    def test_completion_where_bash_is_installed(self):
        self.assertEqual(self.complete("talon", "ser"), ["serve"])
        self.assertEqual(self.complete("talon", "bench", "longc"), ["longcontext"])
        self.assertEqual(self.complete("talon", "serve", "--max-wait"), ["--max-waiting"])
        self.assertEqual(self.complete("talon", "serve", "--max-rou"), [])
        self.assertIn("--prompts", self.complete("talon", "bench", "batch", "--"))
        self.assertIn("EAGLE3", self.complete("talon", "run", "--speculative-algorithm", ""))
        self.assertEqual(self.complete("talon", "run", "-m", "mod"), ["models"])

    @unittest.skipUnless(shutil.which("zsh"), "needs zsh")
    def test_completion_where_zsh_is_installed(self):
        script = self.prefix / "share/zsh/site-functions/_talon"
        self.assertEqual(run("zsh", "-n", script).stderr, "")

    @unittest.skipUnless(shutil.which("dpkg-shlibdeps"), "needs dpkg-dev")
    def test_package_where_debians_tools_are_installed(self):
        build = pathlib.Path(program()).parent
        made = run("cpack", "--config", build / "CPackConfig.cmake", "-B", self.elsewhere)
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        (package,) = self.elsewhere.glob("talon_*.deb")
        files = run("dpkg-deb", "--contents", package).stdout
        for path in ("bin/talon", "share/talon/models/tiny/config.json", "share/man/man1/talon.1",
                     "lib/systemd/system/talon.service"):
            self.assertRegex(files, rf"(?m) \./usr/{path}$")
        self.assertIn("libc6", run("dpkg-deb", "--field", package, "Depends").stdout)

    def test_units_start_the_installed_program(self):
        commands = {"talon.service": "serve", "talon-draft.service": "draft-worker",
                    "talon-target.service": "target-worker"}
        for unit, command in commands.items():
            text = (self.prefix / "lib/systemd/system" / unit).read_text()
            self.assertRegex(text, rf"(?m)^ExecStart={PREFIX}/bin/talon {command} ")

    @unittest.skipUnless(shutil.which("systemd-analyze"), "needs systemd")
    def test_units_where_systemd_is_installed(self):
        build = pathlib.Path(program()).parent
        made = run("cmake", "--install", build, "--prefix", self.elsewhere / "here")
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        for name in ("talon", "talon-draft", "talon-target"):
            unit = self.elsewhere / "here/lib/systemd/system" / f"{name}.service"
            done = run("systemd-analyze", "verify", "--man=no", unit)
            complaints = [line for line in done.stderr.splitlines() if unit.name in line]
            self.assertEqual(complaints, [])


if __name__ == "__main__":
    main()
