"""An installed program: finds its models from any directory, has a manual page and completion; and
what its container is made of.

Usage: install_test.py PATH_OF_TALON [unittest arguments]
"""

import fnmatch
import json
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

    def test_zsh_completes_every_command_and_flag(self):
        script = (self.prefix / "share/zsh/site-functions/_talon").read_text()
        for command in ("run", "chat", "serve", "bench batch", "doctor", "target-worker"):
            help_text = run(program(), *command.split(), "--help").stdout
            flags = set(re.findall(r"(?m)^  (?:-\w,)?(--[\w-]+)", help_text))
            self.assertGreater(len(flags), 5, command)
            (part,) = re.findall(rf"(?ms)^    '{command}'\)$(.*?);;$", script)
            self.assertEqual({flag for flag in flags if f"*{flag}[" not in part}, set(), command)

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


def instructions(dockerfile):
    """[(word, the rest)] of a Dockerfile, continued lines joined."""
    text = re.sub(r"(?m)^#.*\n", "", dockerfile).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]


def copy_complaints(dockerfile):
    """Sources of COPY that are not in the repository, or are kept out of the build."""
    found = []
    ignored = (ROOT / "deploy/Dockerfile.dockerignore").read_text().split()
    stages = re.findall(r"(?m)^FROM \S+ AS (\S+)$", dockerfile)
    for word, rest in instructions(dockerfile):
        if word != "COPY":
            continue
        *sources, _ = rest.split()
        if sources[0].startswith("--from="):
            stage, sources = sources[0][len("--from="):], sources[1:]
            found += [] if stage in stages else [f"COPY: no stage {stage}"]
            found += [f"COPY: {path} is not made in {stage}" for path in sources
                      if not re.search(rf"(?m)^RUN .* {re.escape(path)}$", dockerfile)]
            continue
        for path in sources:
            if not (ROOT / path).exists():
                found.append(f"COPY: {path} is not in the repository")
            if any(fnmatch.fnmatch(path.split("/")[0], pattern) for pattern in ignored):
                found.append(f"COPY: {path} is in Dockerfile.dockerignore")
    return found


def run_complaints(dockerfile):
    """Packages, scripts and targets of make that RUN names and that are not there."""
    found = []
    lists = re.findall(r"(?s)(?:packages|wanted)\+?=\((.*?)\)", (ROOT / "scripts/setup.sh").read_text())
    known = {name for names in lists for name in names.split()}
    targets = re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text())
    copied = []  # source and place of what this stage copies
    for word, rest in instructions(dockerfile):
        if word == "FROM":
            copied = []
        elif word == "COPY":
            *sources, place = [name for name in rest.split() if not name.startswith("--")]
            copied += [(path, place + pathlib.Path(path).name) for path in sources]
        elif word == "RUN":
            for command in re.split(r"&&|;|\|\|", rest):
                name, *words = command.split()
                words = [word for word in words if not word.startswith("-")]
                if name == "apt-get" and words[0] == "install":
                    found += [f"apt-get: {package} is not known to scripts/setup.sh"
                              for package in words[1:] if package not in known
                              and package not in [place for _, place in copied]]
                elif name == "bash" and words[0] not in [path for path, _ in copied]:
                    found.append(f"bash: {words[0]} is not copied")
                elif name == "make":
                    found += [f"make: no target {target}" for target in words if target not in targets]
    return found


def start_complaints(dockerfile):
    """Flags that the program does not know, and ports that it does not open."""
    given = dict(instructions(dockerfile))
    program_name, *words = json.loads(given["ENTRYPOINT"]) + json.loads(given["CMD"])
    found = [] if program_name == "talon" else [f"ENTRYPOINT: {program_name} is not the program"]
    text = talon(words[0], "--help").stdout.decode()
    if f"talon {words[0]} " not in text:
        return found + [f"CMD: no command {words[0]}"]
    flags = set(re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", text))
    examples = " ".join(re.findall(r"(?m)^#.* talon (serve .*)$", dockerfile)).split()
    found += [f"CMD: {word} is not a flag of talon {words[0]}" for word in words[1:] + examples
              if word.startswith("-") and word not in flags]
    port = re.search(r"(?s)\n  --port .*?\(default (\d+)\)", text)[1]
    return found + ([] if given["EXPOSE"] == port else [f"EXPOSE: the program opens {port}"])


class Container(unittest.TestCase):
    """Without Docker: what deploy/Dockerfile names is there."""

    def setUp(self):
        self.text = (ROOT / "deploy/Dockerfile").read_text()

    def complaints_with(self, old, new):
        self.assertIn(old, self.text)
        text = self.text.replace(old, new)
        return copy_complaints(text) + run_complaints(text) + start_complaints(text)

    def test_what_the_dockerfile_names_is_there(self):
        self.assertEqual(self.complaints_with("", ""), [])
        words = {word for word, _ in instructions(self.text)}
        self.assertLessEqual({"COPY", "RUN", "ENTRYPOINT", "CMD", "EXPOSE"}, words)

    def test_a_broken_dockerfile_is_noticed(self):
        for old, new, complaint in [
            ("COPY scripts/setup.sh", "COPY scripts/install.sh", "scripts/install.sh is not in the"),
            ("COPY . .", "COPY build/talon .", "build/talon is in Dockerfile.dockerignore"),
            ("--from=build", "--from=builder", "no stage builder"),
            ("/talon.deb\n\n", "/other.deb\n\n", "/talon.deb is not made in build"),
            ("--no-install-recommends ", "--no-install-recommends libhwy1t64 ", "libhwy1t64 is not"),
            ("/tmp/talon.deb \\", "/talon.deb \\", "/talon.deb is not known"),
            ("bash scripts/setup.sh", "bash scripts/packages.sh", "packages.sh is not copied"),
            ("make package", "make packages", "no target packages"),
            ('"--host"', '"--hostname"', "--hostname is not a flag of talon serve"),
            ("--model /model", "--folder /model", "--folder is not a flag of talon serve"),
            ('"serve"', '"server"', "no command server"),
            ('["talon"]', '["talond"]', "talond is not the program"),
            ("EXPOSE 8080", "EXPOSE 8000", "the program opens 8080"),
        ]:
            with self.subTest(new=new):
                self.assertIn(complaint, "\n".join(self.complaints_with(old, new)))


if __name__ == "__main__":
    main()
