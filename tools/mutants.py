#!/usr/bin/env python3
"""Mutation testing: small wrong changes of the source, each of which a named test must notice.

    mutants.py --check            every row of tests/mutants/*.txt fits the tree (a part of lint)
    mutants.py [WORD...]          run them: all, or those with one of the words in file, test or name
        --jobs N                  that many copies of the tree at once
        --resume                  leave out what was killed before by the same row, file and test
        --find                    where the named tests pass, try the others for one that fails
        --build DIR               the build folder; the copies lie in DIR/mutants (default: build)

A table has sections, one per file, of rows:

    == src/sched/fuse.c

    budget_not_counted   test_codegen golden
    - budget -= cost;
    + budget -= 0;

A row is a name and the tests (CTest's names) that are to fail, tried in this order, then the text
that is replaced and its replacement. The text occurs once in the file; white space does not count, so
formatting and moves leave rows alone. A further line "= reason" says why nothing can notice the change.

Each copy of the tree has a build folder of its own. Killed means: the test ends with an error, or
not within a minute. Ends with 1 when a row does not fit or does not build, when a test fails without
any change, when a change survives without a reason, or is killed although it has one."""
import argparse
import concurrent.futures
import functools
import glob
import hashlib
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

SECONDS = 60  # for a test of a changed library
MEMORY = 6 << 30  # that a test may map
GROUP = 8  # changes of one file that one copy of the tree tries
QUICK_SECONDS = 5  # without a change, of the tests that --find tries
TABLES = "tests/mutants/*.txt"


class Mutant:
    def __init__(self, table, line, file, name, tests):
        self.place, self.file, self.name, self.tests = f"{table}:{line}", file, name, tests
        self.old, self.new, self.reason = [], [], ""

    def has(self, words):
        return any(word in " ".join([self.file, self.name, *self.tests]) for word in words)

    def key(self, root):
        """What a result belongs to: the row, its file and its tests."""
        digest = hashlib.sha256(repr((self.old, self.new, self.tests)).encode())
        for path in [self.file] + [f"tests/unit/{test}.c" for test in self.tests]:
            if os.path.exists(os.path.join(root, path)):
                digest.update(read(os.path.join(root, path)).encode())
        return f"{self.file} {self.name} {digest.hexdigest()[:16]}"


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


# ---- the table ----------------------------------------------------------------------------------


def parse(path):
    """Mutants of one table; a line that makes no sense is a string instead."""
    file = mutant = None
    for number, line in enumerate(read(path).split("\n"), 1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if words[0] == "==":
            file, mutant = words[1], None
        elif line[0] in "-+=" and line[1:2] in ("", " ") and mutant:
            text = line[2:]
            if line[0] == "=":
                mutant.reason = (mutant.reason + " " + text).strip()
            else:
                (mutant.old if line[0] == "-" else mutant.new).append(text)
        elif file and len(words) > 1 and re.fullmatch(r"[a-z0-9_]+", words[0]):
            mutant = Mutant(path, number, file, words[0], words[1:])
            yield mutant
        else:
            yield f"{path}:{number}: neither '== file', nor 'name test...', nor '- old', '+ new', '= reason'"


@functools.lru_cache(maxsize=8)  # rows of one file follow each other
def squeeze(text):
    """Without white space, except between words; with the place of each letter that is left."""
    out, places = [], []
    for at, letter in enumerate(text):
        if letter.isspace():
            continue
        gap = at > 0 and text[at - 1].isspace()
        if gap and out and re.match(r"\w", letter) and re.match(r"\w", out[-1]):
            out.append(" ")
            places.append(at - 1)
        out.append(letter)
        places.append(at)
    return "".join(out), places


def find(mutant, text):
    """Start and end of the row's old text; a string says what is wrong."""
    have, places = squeeze(text)
    want, _ = squeeze("\n".join(mutant.old))
    if not want:
        return "there is no text to replace"
    if squeeze("\n".join(mutant.new))[0] == want:
        return "nothing changes"
    count = have.count(want)
    if count != 1:
        first = mutant.old[0].strip()
        much = f"occurs {count} times" if count else "is gone"
        return f"the text '{first}' {much} in {mutant.file}: write what stands there now, or drop the row"
    at = have.index(want)
    return places[at], places[at + len(want) - 1] + 1


def test_sources():
    """Names of tests as far as they can be told without a build folder."""
    names = {os.path.basename(path)[:-2] for path in glob.glob("tests/unit/test_*.c")}
    names |= {os.path.basename(path)[:-2] for path in glob.glob("tests/data/test_*.c")}
    names |= {os.path.basename(path)[:-3] for path in glob.glob("tests/cpp/test_*.cc")}
    names |= {name + variant for name in names for variant in ("_amx", "_widened", "_base", "_v3")}
    names |= {os.path.basename(path)[:-3] for path in glob.glob("tests/cpp/*.cc")}
    names |= {"cli_" + os.path.basename(path)[:-3] for path in glob.glob("tests/cli/*.sh")}
    return names | {"golden", "fuzz", "soak", "linear", "test_models"}


def check(mutants):
    """Lines that say which rows do not fit the tree."""
    seen, known = set(), test_sources()
    for mutant in mutants:
        if isinstance(mutant, str):
            yield mutant
            continue
        where = f"{mutant.place}: {mutant.name}: "
        if (mutant.file, mutant.name) in seen:
            yield where + "another row has this name"
        seen.add((mutant.file, mutant.name))
        table = f"tests/mutants/{mutant.file.removeprefix('src/').split('/')[0]}.txt"
        if mutant.place.split(":")[0] != table:
            yield where + f"rows of {mutant.file} stand in {table}"
        for test in mutant.tests:
            if test not in known:
                yield where + f"there is no test {test}"
        if not os.path.exists(mutant.file):
            yield where + f"there is no file {mutant.file}"
            continue
        found = find(mutant, read(mutant.file))
        if isinstance(found, str):
            yield where + found
    yield from check_example()


def check_example():
    """docs/testing.md shows a section with a row: both are taken from a table."""
    tables = "".join(read(path) for path in sorted(glob.glob(TABLES)))
    for section in re.findall(r"```\n(== .*?)```", read("docs/testing.md"), re.S):
        for part in section.strip().split("\n\n"):
            if part + "\n" not in tables:
                yield "docs/testing.md: no table has " + part.split("\n")[0]


# ---- a copy of the tree -------------------------------------------------------------------------


def tree_files():
    """Files of the tree, with what is not committed yet."""
    listing = subprocess.run(["git", "ls-files", "-coz", "--exclude-standard"], capture_output=True)
    if listing.returncode == 0:
        return [name for name in listing.stdout.decode().split("\0") if name and os.path.isfile(name)]
    found = []
    for folder, folders, names in os.walk("."):
        folders[:] = [name for name in folders if not name.startswith((".", "build"))]
        found += [os.path.relpath(os.path.join(folder, name)) for name in names]
    return found


def same(a, b):
    if not os.path.exists(b) or os.path.getsize(a) != os.path.getsize(b):
        return False
    with open(a, "rb") as first, open(b, "rb") as second:
        return first.read() == second.read()


def limit_memory():
    """Of a loop that does not end, and allocates."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def run(command, seconds, **more):
    """(exit status, output) of a command and all that it starts; status None: it was ended after the time."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=limit_memory, **more)
    try:
        output, _ = process.communicate(timeout=seconds)
        return process.returncode, output.decode(errors="replace")
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return None, output.decode(errors="replace")
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise


class Copy:
    """A copy of the tree with its own build folder, in which one change after the other is tried."""

    def __init__(self, folder):
        self.tree, self.build = os.path.join(folder, "tree"), os.path.join(folder, "build")
        self.cache, self.fresh = os.path.join(self.build, "test-cache"), os.path.join(folder, "cache")
        self.passed, self.seconds, self.tests = {}, {}, {}

    def update(self):
        """Only what differs is copied: the rest need not be built again."""
        files = tree_files()
        for name in files:
            target = os.path.join(self.tree, name)
            if not same(name, target):
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copyfile(name, target)
                shutil.copymode(name, target)
        keep = set(files)
        for folder, _, names in os.walk(self.tree):
            for name in names:
                path = os.path.join(folder, name)
                if os.path.relpath(path, self.tree) not in keep:
                    os.unlink(path)

    def configure(self, flags):
        command = ["cmake", "-S", self.tree, "-B", self.build, "-G", "Ninja", "-DCARBIDE_WERROR=OFF"]
        status, output = run(command + flags, 300)
        if status == 0:
            self.read_tests()
        return output if status else ""

    def read_tests(self):
        """CTest's list: it can be had before the programs are built."""
        for line in read(os.path.join(self.build, "CTestTestfile.cmake")).splitlines():
            kind, _, rest = line.partition("(")
            words = shlex.split(rest.rstrip(")").replace("[=[", "").replace("]=]", ""))
            if kind == "add_test":
                self.tests[words[0]] = {"command": words[1:]}
            elif kind == "set_tests_properties":
                self.tests[words[0]].update(zip(words[2::2], words[3::2]))

    def compile(self, test):
        prefix = self.build + "/"
        targets = [word[len(prefix) :] for word in self.tests[test]["command"] if word.startswith(prefix)]
        status, output = run(["ninja", "-C", self.build] + targets, 600)
        return "" if status == 0 else output

    def run_test(self, test):
        """(failed, how): a run that begins with the disk cache of the unchanged library."""
        entry = self.tests[test]
        given = dict(pair.split("=", 1) for pair in entry.get("ENVIRONMENT", "").split(";") if pair)
        folder = entry.get("WORKING_DIRECTORY", self.build)
        status, output = run(entry["command"], SECONDS, cwd=folder, env={**os.environ, **given})
        if status is None:
            return True, f"{test}: more than {SECONDS} s"
        case = re.search(r"^\[  FAILED  \] (test_\w+|\w+)$", output, re.M)
        differs = re.search(r"(\w+\.t) differs", output)
        how = case.group(1) if case else differs.group(1) if differs else f"status {status}"
        return status != 0, f"{test}: {how}" if status else ""

    def restore_cache(self):
        shutil.rmtree(self.cache, ignore_errors=True)
        if os.path.isdir(self.fresh):
            shutil.copytree(self.fresh, self.cache)

    def passes(self, test):
        """Whether a test passes without a change; what it compiles is kept for the runs with one."""
        if test not in self.passed:
            self.restore_cache()
            output = "no such test" if test not in self.tests else self.compile(test)
            start = time.time()
            if not output:
                _, output = self.run_test(test)
            self.passed[test], self.seconds[test] = output, time.time() - start
            if not output and os.path.isdir(self.cache):
                shutil.rmtree(self.fresh, ignore_errors=True)
                shutil.copytree(self.cache, self.fresh)
        return self.passed[test]

    def quick_tests(self):
        """Tests of a few seconds that pass, the quickest first."""
        names = [name for name in self.tests if name in test_sources() and not name.startswith("cli_")]
        names = [name for name in names if not self.passes(name) and self.seconds[name] < QUICK_SECONDS]
        return sorted(names, key=self.seconds.get)

    def try_change(self, mutant, others):
        """(result, how): killed, survived or broken."""
        for test in mutant.tests:
            broken = self.passes(test)
            if broken:
                return "broken", f"without the change {test} fails: {broken[-600:]}"
        path = os.path.join(self.tree, mutant.file)
        text = read(path)
        start, end = find(mutant, text)
        write(path, text[:start] + "\n".join(mutant.new) + text[end:])
        try:
            for test in mutant.tests + others:
                output = self.compile(test)
                if output:
                    return "broken", "does not build: " + "\n".join(re.findall(r".*error.*", output)[:3])
                self.restore_cache()
                failed, how = self.run_test(test)
                if failed:
                    return "killed", how
            return "survived", ""
        finally:
            write(path, text)


# ---- running ------------------------------------------------------------------------------------


class Results:
    """One line per result, appended as they come: an interrupted run can be resumed."""

    def __init__(self, path, resume):
        self.path, self.lock, self.before = path, threading.Lock(), {}
        if resume and os.path.exists(path):
            for line in read(path).splitlines():
                key, result, how = line.split("\t")
                self.before[key] = (result, how)
        elif os.path.exists(path):
            os.unlink(path)

    def add(self, key, result, how):
        with self.lock, open(self.path, "a", encoding="utf-8") as file:
            file.write(f"{key}\t{result}\t{' '.join(how.split())}\n")


def verdict(mutant, result):
    """What the table prints, and whether it is as it should be."""
    if result == "killed":
        return ("killed, though equivalent", False) if mutant.reason else ("killed", True)
    if result == "survived":
        return ("survived, equivalent", True) if mutant.reason else ("SURVIVED", False)
    return "BROKEN", False


def work(copy, groups, options, results, done):
    while groups:
        try:
            group = groups.pop()
        except IndexError:
            return
        for mutant in group:
            start, key = time.time(), mutant.key(".")
            result, how = results.before.get(key, ("", ""))
            if result != "killed":
                others = copy.quick_tests() if options.find else []
                result, how = copy.try_change(mutant, [name for name in others if name not in mutant.tests])
                results.add(key, result, how)
            text, good = verdict(mutant, result)
            done.append((mutant, result, good))
            print(f"{time.time() - start:5.1f} s  {mutant.file} {mutant.name}: {text}" + (f" ({how})" if how else ""), flush=True)


def in_groups(mutants):
    """Changes of one file, which are made one after the other, so that each builds that file alone; those of a
    long table are of several groups, so that the copies end at about the same time. The last is taken first."""
    by_file = {}
    for mutant in mutants:
        by_file.setdefault(mutant.file, []).append(mutant)
    groups = [rows[k : k + GROUP] for rows in by_file.values() for k in range(0, len(rows), GROUP)]
    return list(reversed(groups))


def run_all(mutants, options):
    folder = os.path.abspath(os.path.join(options.build, "mutants"))
    os.makedirs(folder, exist_ok=True)
    results = Results(os.path.join(folder, "results"), options.resume)
    copies = [Copy(os.path.join(folder, str(job))) for job in range(options.jobs)]
    for copy in copies:
        copy.update()
        output = copy.configure(options.cmake.split())
        if output:
            print(output)
            return 1
    groups, done = in_groups(mutants), []
    with concurrent.futures.ThreadPoolExecutor(len(copies)) as pool:
        for job in [pool.submit(work, copy, groups, options, results, done) for copy in copies]:
            job.result()
    return summary(done)


def summary(done):
    survived = [mutant for mutant, result, _ in done if result == "survived"]
    killed = sum(result == "killed" for _, result, _ in done)
    equivalent = [mutant for mutant in survived if mutant.reason]
    for mutant in equivalent:
        print(f"equivalent: {mutant.file} {mutant.name}: {mutant.reason}")
    for mutant, result, good in done:
        if not good:
            print(f"{mutant.place}: {mutant.file} {mutant.name}: {verdict(mutant, result)[0]}")
    broken = len(done) - killed - len(survived)
    print(f"{len(done)} mutants, {killed} killed, {len(survived)} survived ({len(equivalent)} of them equivalent)"
          + (f", {broken} broken" if broken else ""))
    return 0 if all(good for _, _, good in done) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--find", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--build", default="build")
    parser.add_argument("--cmake", default="", help="more arguments for cmake")
    options = parser.parse_args()
    os.chdir(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    mutants = [mutant for path in sorted(glob.glob(TABLES)) for mutant in parse(path)]
    if options.words:
        mutants = [mutant for mutant in mutants if isinstance(mutant, str) or mutant.has(options.words)]
    wrong = list(check(mutants))
    if wrong:
        print("\n".join(wrong))
        return 1
    if options.check:
        print(f"lint: mutants OK ({len(mutants)} rows)")
        return 0
    return run_all(mutants, options)


if __name__ == "__main__":
    sys.exit(main())
