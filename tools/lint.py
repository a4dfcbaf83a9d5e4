#!/usr/bin/env python3
"""Checks of the house rules that no compiler makes. Prints one line per check, or the places that break it.

    lint.py layers      includes and declarations point down: a file sees only headers of its own or lower layers, and a
                        header declares what its own layer defines; a folder holds at most 15 % of the code
    lint.py lengths     lines of 100 columns, functions of 60 lines, files of 600 (a remark)
    lint.py environment base/environment.c alone reads the environment
    lint.py locks       base/lock.c alone has locks, which fork() therefore knows
    lint.py walks       who reads a function's entries outside of its calls has entered it
    lint.py exports     every extern function of src is used outside its file   (lint.py exports BUILD)
    lint.py objects     every object of the process is a row of docs/lifetimes.md   (lint.py objects BUILD)
    lint.py reasons     every row of reasons.def is used
    lint.py calls       every public function that may fail records the caller's line
    lint.py docs        every path and name that README and docs/*.md name exists (lint_docs.py)
    lint.py names       a type of the library or the command has a name that no other type of the tree has
"""
import glob
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True  # no folder beside this file
from lint_docs import check_docs

MOST_COLUMNS, MOST_FUNCTION_LINES, MOST_FILE_LINES = 100, 60, 600
MOST_SHARE = 0.15  # of the code, in one folder

# A layer and what it may include besides itself.
CHAIN = ["base", "op", "device", "tensor", "task", "graph", "lower", "vm", "cpu", "sched", "codegen", "jit", "method", "run", "report", "eager", "trace", "capture"]
SIDE = ["io", "nn", "train", "fx"]  # the API's other half: over tensor and the door of op calls (eager), beside the compiler
ALLOWED = {layer: set(CHAIN[: i + 1]) for i, layer in enumerate(CHAIN)}
ALLOWED.update({layer: set(CHAIN[:4] + ["eager"] + SIDE[: i + 1]) for i, layer in enumerate(SIDE)})
ALLOWED["trace"].add("nn")  # what a trace depends on: modules
ALLOWED["capture"] |= set(SIDE)  # it compiles modules and FX graphs
ALLOWED["cli"] = set(CHAIN + SIDE + ["cli"])


def sources(*patterns):
    found = [p for pattern in patterns for p in glob.glob(pattern, recursive=True)]
    return sorted(p for p in found if os.path.isfile(p))


def lines_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read().split("\n")


def layer_of(path):
    parts = path.split("/")
    if parts[0] == "cli":
        return "cli"
    return parts[1]


def check_layers():
    for path in sources("src/**/*.[ch]", "cli/*.[ch]"):
        layer = layer_of(path)
        if layer not in ALLOWED:
            yield f"{path}: folder {layer} has no place in the layers (tools/lint.py)"
            continue
        for number, line in enumerate(lines_of(path), 1):
            match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if not match:
                continue
            target = match.group(1)
            if os.path.exists("include/" + target) or target in ("op_attrs.h", "op_calls.h", "api_functions.h"):
                continue  # public headers and generated ones
            if target.startswith(".") or not os.path.exists("src/" + target):
                beside = os.path.join(os.path.dirname(path), target)
                if layer == "cli" and os.path.exists(beside):
                    continue
                yield f'{path}:{number}: "{target}" is not a path from src'
            elif layer_of("src/" + target) not in ALLOWED[layer]:
                yield f"{path}:{number}: {layer} includes {target}, of a higher layer"
            elif os.path.dirname(path) == "src/codegen" and target.startswith("codegen/c/"):
                yield f"{path}:{number}: what is for every target includes {target}"
    yield from check_declarations()
    yield from check_shares()


def check_declarations():
    """A header declares what its own layer defines: a declaration that points up is an include that nobody sees."""
    function = r"^(?!static\b|typedef\b)[A-Za-z_][\w *]*?\b(\w+)\([^;{}]*\)[^;{}()]*"
    owner = {}
    for path in sources("src/**/*.c"):
        for name in re.findall(function + r"\{", "\n".join(lines_of(path)), re.M):
            owner[name] = path
    for path in sources("src/**/*.h"):
        for name in re.findall(function + ";", "\n".join(lines_of(path)), re.M):
            if layer_of(owner.get(name, path)) != layer_of(path):
                yield f"{path}: {name} is declared here and defined in another layer, {owner[name]}"


def check_shares():
    """No folder is more than a reader can hold."""
    lines = {}
    for path in sources("src/**/*.[ch]", "src/**/*.def"):
        folder = os.path.dirname(path)
        lines[folder] = lines.get(folder, 0) + len(lines_of(path))
    for folder, count in lines.items():
        if count > MOST_SHARE * sum(lines.values()):
            yield f"{folder} has {count} lines of {sum(lines.values())}, more than {MOST_SHARE:.0%}: two folders"


def function_lengths(lines):
    """(first line, name, length) of functions: they open at column 0 and close with a lone brace."""
    start = name = None
    for number, line in enumerate(lines, 1):
        if start is None and re.match(r"[A-Za-z_].*\)? \{$", line) and "(" in line:
            match = re.search(r"(\w+)\)?\(", line)
            if match and not re.match(r"(typedef|struct|enum|union|extern|do)\b", line):
                start, name = number, match.group(1)
        elif start is None and re.match(r"\s+.*\) \{$", line) and number > 1:
            before = lines[number - 2]  # the parameters went over two lines or more
            back = number - 1
            while back > 0 and re.match(r"\s", lines[back - 1] or "x"):
                back -= 1
            before = lines[back - 1]
            if re.match(r"[A-Za-z_].*\(", before) and not before.endswith("{"):
                start, name = back, re.search(r"(\w+)\)?\(", before).group(1)
        elif start is not None and line == "}":
            yield start, name, number - start + 1
            start = None


def check_lengths():
    allowed = set()
    if os.path.exists("tools/long-functions.txt"):
        allowed = {line.split("#")[0].strip() for line in lines_of("tools/long-functions.txt")}
    used = set()
    for path in sources("src/**/*.[ch]", "plugins/*.[ch]", "include/*.h", "models/*.[ch]", "data/*.[ch]", "cli/*.[ch]", "tests/**/*.[ch]",
                        "examples/*.c", "bench/*.c", "tools/*.c"):
        lines = lines_of(path)
        for number, line in enumerate(lines, 1):
            if len(line) > MOST_COLUMNS:
                yield f"{path}:{number}: {len(line)} columns"
        for start, name, length in function_lengths(lines):
            if length <= MOST_FUNCTION_LINES or path.startswith("tests/"):
                continue
            if f"{path}:{name}" in allowed:
                used.add(f"{path}:{name}")
            else:
                yield f"{path}:{start}: {name} has {length} lines"
        if len(lines) > MOST_FILE_LINES + 1 and not path.startswith(("tests/", "include/")):
            print(f"lint: remark: {path} has {len(lines)} lines")
    for entry in sorted(allowed - used - {""}):
        yield f"tools/long-functions.txt: {entry} is not long (any more)"


def symbols(paths):
    """object file -> (defined, needed) extern names"""
    found = {path: (set(), set()) for path in paths}
    text = subprocess.run(["nm", "-g", "-A", *found], capture_output=True, text=True).stdout
    for line in text.splitlines():
        kind, name = line.split()[-2:]
        found[line.split(":", 1)[0]][kind in "Uw"].add(name)
    return found


def compiled(build):
    """(source, object file) of what was built of the tree as it is."""
    for path in sources(build + "/CMakeFiles/**/*.o"):
        source = re.sub(r".*?\.dir/(.*)\.o$", r"\1", path)
        if source.startswith("/") or os.path.exists(source) or "/gen/" in "/" + source:
            yield source, path


def check_objects(build):
    """Writable sections, thread-local ones aside; a static of a function has a number behind its name."""
    if not list(compiled(build)):
        yield f"{build} holds no objects: build first"
    rows = [line for line in lines_of("docs/lifetimes.md") if line.startswith("| `")]
    for source, path in compiled(build):
        if not source.startswith("src/"):
            continue
        text = subprocess.run(["objdump", "-t", path], capture_output=True, text=True).stdout
        for name in re.findall(r" O \.(?:data|bss|data\.rel|data\.rel\.local)\t\S+ (?:\.hidden )?(\w+)", text):
            if not any(f"`{source[4:]}`" in row and f"`{name}`" in row for row in rows):
                yield f"{source}: {name} lives as long as the process: docs/lifetimes.md has no row of it"


def check_exports(build):
    objects = list(compiled(build))
    if not objects:
        yield f"{build} holds no objects: build first"
    owner, needed_by, found = {}, {}, symbols(path for _, path in objects)
    for source, path in objects:
        defined, needed = found[path]
        for name in needed:
            needed_by.setdefault(name, set()).add(source)
        if source.startswith("src/"):
            for name in defined:
                owner[name] = source
    for name, source in sorted(owner.items(), key=lambda item: (item[1], item[0])):
        compiler = name.startswith(("__", "DW.ref."))  # sanitizers; what cleanups refer to
        if not name.startswith("cb_") and not compiler and not needed_by.get(name, set()) - {source}:
            yield f"{source}: {name} is extern, and nothing outside the file uses it"


def check_calls():
    """Public functions have a macro that records the caller's line, unless they cannot fail."""
    cannot_fail = {"cb_error", "cb_error_status", "cb_clear_error", "cb_site", "cb_memory", "cb_set_allocator",
                   "cb_cleanup", "cb_dtype_name", "cb_dtype_size", "cb_promote", "cb_manual_seed",
                   "cb_autocast_dtype", "cb_free_text", "cb_threads", "cb_get_float32_matmul_precision",
                   "cb_opcode_name", "cb_compiled_as", "cb_set_flush_denormal"}
    text = "\n".join("\n".join(lines_of(p)) for p in sources("include/*.h"))
    for name in re.findall(r"^CB_API [^;(]*?\b(cb_\w+)\(", text, re.M):
        if name not in cannot_fail and not re.search(rf"^#define {name}\(", text, re.M):
            yield f"include/carbide_calls.h: {name} has no macro that records the caller's line"


def check_reasons():
    text = "".join("\n".join(lines_of(p)) for p in sources("src/**/*.[ch]", "src/**/*.def"))
    given = set(re.findall(r"\bREASON_(\w+)", text))
    for row in re.findall(r"^REASON\((\w+)", "\n".join(lines_of("src/base/reasons.def")), re.M):
        if row not in given:
            yield f"src/base/reasons.def: nothing gives the reason {row}"


def check_environment():
    for path in sources("src/**/*.[ch]", "plugins/*.[ch]", "models/*.[ch]", "data/*.[ch]", "cli/*.[ch]"):
        for number, line in enumerate(lines_of(path), 1):
            if re.search(r"getenv *\(", line) and path != "src/base/environment.c":
                yield f"{path}:{number}: environment() knows when a caller is not to be trusted (base/environment.h)"


def check_locks():
    words = r"\b(pthread_(mutex|rwlock|spin|cond|atfork|barrier)\w*|sem_(init|wait|post)|mtx_\w+|flockfile|omp_\w*lock\w*)\b|omp critical"
    for path in sources("src/**/*.[ch]"):
        for number, line in enumerate(lines_of(path), 1):
            if re.search(words, line) and not path.startswith("src/base/lock."):
                yield f"{path}:{number}: fork() knows the locks of base/locks.def alone"


def check_walks():
    """Entries that leave a function are freed unless somebody is inside of it (src/capture/retire.c)."""
    calls = "entry frozen function match miss number passing replay retire segment sizes".split()
    prints = "explain page summary".split()  # which function_text calls, or which enter
    for path in sources("src/**/*.c"):
        for number, line in enumerate(lines_of(path), 1):
            known = path.startswith("src/capture/") and os.path.basename(path)[:-2] in calls + prints
            if re.search(r"atomic_load\(&[\w>-]+->first\)", line) and not known:
                yield f"{path}:{number}: outside of calls, function_text and function_stats enter the function whose entries they read"


def without_comments(path):
    """The text with comments and the literals' contents blank, line for line."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group())
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', blank, "\n".join(lines_of(path)), flags=re.S)


def type_names(text):
    """(name, line) of the types that a file defines: tags with a body, and typedefs that are more than a tag's name."""
    for match in re.finditer(r"\b(?:struct|enum|union)\s+(?:__attribute__\s*\(\(.*?\)\)\s*)?(\w+)\s*\{", text):
        yield match.group(1), text.count("\n", 0, match.start()) + 1
    for match in re.finditer(r"^[ \t]*typedef\s([^;{}]*);", text, re.M):
        words = re.sub(r"__attribute__\s*\(\(.*\)\)", "", match.group(1), flags=re.S)
        name = re.search(r"\(\s*\*\s*(\w+)\s*\)\s*\(|(\w+)\s*\(|(\w+)\s*(?:\[\w*\]\s*)*$", words)
        name = name and (name.group(1) or name.group(2) or name.group(3))
        if name and name != "NAME" and not re.match(rf"(struct|enum|union)\s+{name}\s+{name}$", words):
            yield name, text.count("\n", 0, match.start()) + 1


def enumerators(text):
    """(name, line) of what a file's enums list."""
    for match in re.finditer(r"\benum\b[^;{}()]*(?:\(\(.*?\)\)[^;{}()]*)?\{([^}]*)\}", text):
        for name in re.finditer(r"(?:^|,)\s*(\w+)\s*(?==|,|$)", match.group(1)):
            yield name.group(1), text.count("\n", 0, match.start(1) + name.start(1)) + 1


def check_names():
    """Programs - tests, benchmarks, tools - may repeat names of each other's, but none of the library's. No two
    headers of the library list one enumerator."""
    library = sources("src/**/*.[ch]", "include/*.h", "plugins/*.[ch]", "models/*.[ch]", "data/*.[ch]", "cli/*.[ch]")
    owner = {}
    for path in library + sources("tests/**/*.[ch]", "bench/*.[ch]", "tools/*.[ch]", "examples/*.c"):
        for name, line in type_names(without_comments(path)):
            if name not in owner and path in library:
                owner[name] = path
            elif owner.get(name, path) != path:
                yield f"{path}:{line}: {owner[name]} has a {name}, too: name it by what it is"
    listed = {}
    for path in (path for path in library if path.endswith(".h")):
        for name, line in enumerators(without_comments(path)):
            if listed.setdefault(name, path) != path:
                yield f"{path}:{line}: {listed[name]} lists a {name}, too: name it by what it is"


def main():
    checks = {"layers": check_layers, "lengths": check_lengths, "reasons": check_reasons, "environment": check_environment, "locks": check_locks, "walks": check_walks,
              "calls": check_calls, "names": check_names, "docs": check_docs, "exports": lambda: check_exports(sys.argv[2]), "objects": lambda: check_objects(sys.argv[2])}
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in checks or (name in ("exports", "objects") and len(sys.argv) < 3):
        print("usage: lint.py layers|lengths|environment|locks|walks|reasons|calls|names|docs|exports BUILD|objects BUILD      (tools/lint.sh runs them all)")
        return 2
    problems = list(checks[name]())
    for problem in problems:
        print(f"lint: {name}: {problem}")
    if not problems:
        print(f"lint: {name} OK")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
