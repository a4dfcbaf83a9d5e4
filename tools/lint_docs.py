"""Do the paths and names that the documents say exist? `lint.py docs` asks check_docs().

What is looked at: README.md and docs/*.md. In backquotes, every path is a file of the tree, every identifier a word
of its code (comments do not count, so a function that is gone is found even where a comment still names it), every
`make x` a target, every build/x a program. Anywhere, cb_x, CARBIDE_X, src/x and links to other pages. C in fences is
compiled by tests/cli/snippets.py and left alone here; what it defines, the page may name. NAME in capitals stands
for anything: `op_NAME`. Comments of the code that send the reader to a page are looked at, too.
"""
import fnmatch
import functools
import glob
import os
import re

CODE = ["src/**/*.[ch]", "src/**/*.def", "include/*.h", "plugins/*.[ch]", "models/*.[ch]", "data/*.[ch]", "cli/*.[ch]", "examples/*.c*",
        "bench/*.*", "tests/**/*.c*", "tests/**/*.h", "tests/**/*.py", "tests/**/*.sh", "tools/*.*", "CMakeLists.txt",
        "tests/**/*.cmake", "tools/cmake/*", "Makefile", "tests/golden/*.t"]
FOLDERS = "src|include|plugins|models|data|cli|examples|bench|tests|tools|docs|third_party"
ENDINGS = "c|h|cc|def|py|sh|md|txt|cmake|t"
PATH = rf"(?:[\w.*-]+/)+[\w.*-]*|[\w*-]+\.(?:{ENDINGS})\b"
FOREIGN = {"libgcc_s", "noexec", "pip", "taskset"}  # other people's names
WRONG = """`src/graph/nothing.c` `graph_nothing` `cb_nothing` `make nothing` CARBIDE_NOTHING src/nothing
`build/nothing` `NothingKind` [page](nothing.md)"""  # what check_docs has to find, nine places


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def files_of(patterns):
    return [p for pattern in patterns for p in glob.glob(pattern, recursive=True) if os.path.isfile(p)]


def words_of_code():
    """Every word of the code without C's comments, and what the tables make of their rows."""
    words = set()
    for path in files_of(CODE):
        if os.path.basename(path) == os.path.basename(__file__):
            continue
        text = read(path)
        if re.search(r"\.(c|h|cc|def)$", path):
            text = re.sub(r"/\*.*?\*/|^\s*//[^\n]*", " ", text, flags=re.S | re.M)
        words.update(re.findall(r"\w+", text))
        words.add(re.sub(r"\..*", "", os.path.basename(path)))
    for table, forms in (("src/op/ops.def", ["cb_{}", "op_{}", "OP_{}"]), ("src/nn/layers.def", ["cb_nn_{}"]),
                         ("src/base/reasons.def", ["REASON_{}"]), ("src/base/options.def", ["OPTION_{}"])):
        for row in re.findall(r"^[A-Z_]+\(\s*(\w+)", read(table), re.M):
            words.update(form.format(row) for form in forms)
    for row in re.findall(r"^OPTION\((\w+)", read("src/base/options.def"), re.M):
        words.add("CARBIDE_" + row.upper())
    return words


class Tree:
    def __init__(self):
        self.words = words_of_code()
        self.paths = [p[2:] for p in files_of(["./*"] + [f"./{folder}/**/*" for folder in FOLDERS.split("|")])]
        folders = {os.path.dirname(p) for p in self.paths}
        self.folders = {"/".join(f.split("/")[: i + 1]) for f in folders for i in range(f.count("/") + 1)}
        self.generated = set(re.findall(r'"(\w+\.h)"', "".join(read(p) for p in files_of(["tools/opgen*.c"]))))
        self.targets = set(re.findall(r"^([a-z]+):", read("Makefile"), re.M))
        cmake = "".join(read(p) for p in files_of(["CMakeLists.txt", "tests/**/*.cmake"]))
        self.programs = set(re.findall(r"(?:carbide_program|add_executable|add_library)\((\w+)", cmake))
        self.programs |= {"carbide", "gen", "fuzzers", "tests", "mutants"}
        self.programs |= {re.sub(r"\..*", "", os.path.basename(p)) for p in files_of(["examples/*.c*"])}

    @functools.cache
    def has_path(self, path):
        """From the root, or the end of one: `capture/replay.c`."""
        path = re.sub(r"\b[A-Z]{2,}\b|(?<=_)[A-Z]{2,}", "*", path).rstrip("/.")
        if path.startswith("build"):
            part = path.split("/")
            return len(part) < 2 or part[1] in self.programs or "*" in path or "." in part[1]
        if path in self.generated or path in self.folders or any(f.endswith("/" + path) for f in self.folders):
            return True
        return any(fnmatch.fnmatch(p, path) or fnmatch.fnmatch(p, "*/" + path) for p in self.paths)


def spans(text):
    """(line, text, kind): what stands in backquotes, in fences that are not C, and the rest."""
    fence = None
    for number, line in enumerate(text.split("\n"), 1):
        opened = re.match(r"\s*```(\w*)", line)
        if opened:
            fence = None if fence is not None else opened.group(1)
        elif fence is not None:
            if fence not in ("c", "C"):
                yield number, line, "fence"
        else:
            for quoted in re.findall(r"`([^`]+)`", line):
                yield number, quoted, "quoted"
            yield number, re.sub(r"`[^`]+`", " ", line), "text"


def names_in(span, kind):
    """(what, name) that a piece of a page claims to exist."""
    for name in re.findall(r"\bmake ([a-z]+)\b", span if kind != "text" else ""):
        yield "target", name
    for name in re.findall(r"\b(?:cb_\w+|CARBIDE_[A-Z_]+)\b(?!\*|\.)", span):
        yield "word", name
    for path in re.findall(rf"(?<![\w/.~-])(?:{FOLDERS})/[\w./*-]*", span if kind != "quoted" else ""):
        yield "path", path
    if kind != "quoted":
        return
    for path in re.findall(rf"(?<![\w/.~$-])(?:{PATH})(?!:\d)", span):
        if not path.startswith((".", "torch")):
            yield "path", path
    rest = re.sub(rf"(?<![\w/.~$-])(?:{PATH})|\S*https?://\S*|[\w./~-]*\$\S*|\"[^\"]*\"|'[^']*'", " ", span)
    for word in re.findall(r"(?<![\w.*/~-])[A-Za-z_]\w{2,}(?![\w*/-])(?!\.\w)", rest):
        if not word.isupper() and not re.match(r"cb_|CARBIDE_|.*_[A-Z]+$", word):
            yield "word", word


def problems_of(page, text, tree):
    """Of one page; what its own C defines, it may name."""
    shown = set(re.findall(r"\w+", "".join(re.findall(r"```c\n(.*?)```", text, re.S))))
    words = tree.words | shown | FOREIGN
    asks = {"word": lambda word: word in words or word.startswith("cb_") and word[3:] in shown,
            "target": lambda name: name in tree.targets, "path": tree.has_path}
    says = {"word": "nothing in the code is called {}", "target": "the Makefile has no target {}", "path": "there is no {}"}
    for number, span, kind in spans(text):
        for what, name in names_in(span, kind):
            if not asks[what](name):
                yield f"{page}:{number}: {says[what].format(name)}"
        for link in re.findall(r"\]\(([^)#]+)", span if kind == "text" else ""):
            if "://" not in link and not os.path.exists(os.path.join(os.path.dirname(page), link)):
                yield f"{page}:{number}: there is no {link}"


def references():
    """Comments name pages by their path."""
    for path in files_of(CODE):
        for number, line in enumerate(read(path).split("\n"), 1):
            for page in re.findall(r"\bdocs/[\w-]+\.md", line):
                if not os.path.exists(page):
                    yield f"{path}:{number}: there is no {page}"


def house():
    """docs/architecture.md is short, and has a row for every folder of src."""
    page = read("docs/architecture.md")
    if page.count("\n") > 120:
        yield f"docs/architecture.md: {page.count(chr(10))} lines; the other pages have room"
    for folder in sorted({os.path.dirname(path) for path in files_of(["src/**/*.[ch]"])}):
        if f"\n| `{folder}` | " not in page:
            yield f"docs/architecture.md: {folder} has no row"


def locks():
    """docs/lifetimes.md has a row for every lock."""
    page = read("docs/lifetimes.md")
    for row in re.findall(r"^LOCK\((\w+)", read("src/base/locks.def"), re.M):
        if f"\n| `{row}` | " not in page:
            yield f"docs/lifetimes.md: the lock {row} has no row"


def options():
    """include/carbide.h has the words of every option of cb_compile, as their table has them."""
    page = read("include/carbide.h")
    devices = re.findall(r"^ +DEVICE\((\w+),", read("src/device/device.h"), re.M)
    rows = re.findall(r"^OPTION\((\w+),(.*?\)\))$", read("src/capture/options.def"), re.M | re.S)
    for name, row in rows:
        words = re.findall(r'VALUE\(\w+, "([^"]+)"\)', row) + (devices if "DEVICES(" in row else [])
        if f"\n *   {name:<10} {' | '.join(words)}\n" not in page:
            yield f"include/carbide.h: option {name}: {' | '.join(words)}"
    if len(rows) != read("src/capture/options.def").count("\nOPTION("):
        yield "src/capture/options.def: a row is not understood"


def check_docs():
    tree = Tree()
    found = len(list(problems_of("WRONG", WRONG, tree)))
    if found != 9:
        yield f"tools/lint_docs.py: {found} of 9 wrong names are found"
    yield from references()
    yield from locks()
    yield from house()
    yield from options()
    for page in ["README.md"] + sorted(glob.glob("docs/*.md")):
        yield from problems_of(page, read(page), tree)
