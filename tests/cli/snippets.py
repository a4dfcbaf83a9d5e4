#!/usr/bin/env python3
"""Every C snippet of README, docs and the headers' opening comments compiles and runs as written.

    tests/cli/snippets.py BUILD [PAGE...]     BUILD: a build folder, with the library and opgen

A block with main stands for itself. Of other blocks and of a header's opening comment, functions
stay and statements go into main, behind what GIVEN declares. Rows of tables go through opgen.

A block of text right behind a block of C is what that prints. A block "console" is a session of a
shell: each command behind "$ " prints what follows it, on both of its outputs. C whose first line is
/* NAME.c */ lies in the session's folder; programs compile and link as with an installed library. In
what is printed "..." stands for any text of a line, and on a line of its own for any lines.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(sys.argv[1])
INCLUDE = [ROOT + "/include", ROOT + "/models", BUILD + "/gen"]
FLAGS = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-variable", "-Wno-unused-function",
         "-Wno-unused-parameter", *("-I" + folder for folder in INCLUDE), "-L" + BUILD,
         "-Wl,-rpath," + BUILD]
LINK = ["-lcarbide_models", "-lcarbide_data", "-lcarbide", "-lm"]
X = "cb_tensor *x = cb_randn(cb_dims(3, 4));"
GIVEN = {  # what the snippets of a file take for granted
    "include/carbide.h": X,
    "include/carbide_nn.h": X,
    "include/carbide_io.h": 'cb_module *net = cb_nn_sequential(cb_nn_linear(4, 2));'
                            'cb_module_save_state(net, "model.safetensors");',
    "include/carbide_custom.h": X + "cb_status running_max(const cb_op_call *call) {"
                                    "(void)call; return CB_OK; }",
    "include/carbide_backend.h": "cb_tensor *f(cb_tensor *x) { return cb_relu(x); }",
    "include/carbide_grad.h": X + "cb_tensor *w = cb_randn(cb_dims(4, 2)), *y = cb_randn(cb_dims(3, 2));",
    "include/carbide_train.h": X + "cb_module *net = cb_nn_linear(4, 2);"
                               "int64_t classes[3] = {0, 1, 0}; cb_tensor *target = cb_from_data(classes, CB_I64, 3);",
    "include/carbide_data.h": 'FILE *text = fopen("shakespeare.txt", "w");'
                              'for (int i = 0; i < 100; i++) fputc(65 + i % 26, text); fclose(text);',
    "include/carbide_fx.h": "cb_module *module = cb_nn_linear(4, 2);",
}
failures = 0


def report(where, message):
    global failures
    failures += 1
    print(f"{where}: {message}")


def fenced(text):
    """(line, language, block, what it prints or None)."""
    blocks = [(m.start(), m.end(), m.group(1), m.group(2))
              for m in re.finditer(r"^```(\w*)\n(.*?)^```", text, re.M | re.S)]
    for block, after in zip(blocks, blocks[1:] + [None]):
        start, end, language, code = block
        prints = after and after[2] == "text" and not text[end : after[0]].strip()
        yield text.count("\n", 0, start) + 2, language, code, after[3] if prints else None


def compare(where, expected, printed):
    def pattern(line):
        return r"(?:.*\n)*?" if line == "..." else ".*".join(map(re.escape, line.split("..."))) + r"\n"

    def plain(text):
        return "".join(line.rstrip() + "\n" for line in text.rstrip().split("\n"))

    if not re.fullmatch("".join(map(pattern, plain(expected).split("\n")[:-1])), plain(printed)):
        report(where, "prints something else:\n" + printed)


def session(where, text, folder):
    """Commands, each behind "$ "; lines that end with a backslash go on."""
    path = {"PATH": BUILD, "CPATH": ":".join(INCLUDE), "LIBRARY_PATH": BUILD, "LD_LIBRARY_PATH": BUILD}
    environment = dict(os.environ)
    for name, value in path.items():
        environment[name] = ":".join(filter(None, [value, os.environ.get(name)]))
    for command, printed in re.findall(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", text, re.M):
        result = subprocess.run(["sh", "-c", command], cwd=folder, env=environment, text=True, timeout=120,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        compare(f"{where}: {command}", printed, result.stdout)


def opening(text):
    """The paragraphs of a header's first comment that are code, without remarks behind statements."""
    code = []
    for paragraph in text[: text.index("*/")].split("\n *\n"):
        lines = [re.match(r" \*   +(\S.*)$", line) for line in paragraph.split("\n")]
        if all(lines) and ";" in paragraph:
            code += [line.string[2:] for line in lines] + [""]
    return "\n".join(re.sub(r"([;}])  +\S.*$", r"\1", line) for line in code)


def whole(code, given):
    """Functions as they stand; the statements in main."""
    functions = re.findall(r"^ *static .*?\{(?:[^\n]*?\}$|\n.*?^ *\}$)", code, re.M | re.S)
    for function in functions:
        code = code.replace(function, "")
    return ("#include <carbide_data.h>\n" + "\n".join(functions) + "\nint main(void) {\ncb_scope_open();\n"
            + given + code + "\ncb_scope_close();\nif (cb_error()) puts(cb_error());\n"
            "return cb_error() != NULL;\n}\n")


def run(where, code, folder, printed=None):
    path = os.path.join(folder, "snippet")
    with open(path + ".c", "w") as file:
        file.write(code)
    compiled = subprocess.run([os.environ.get("CC", "cc"), path + ".c", *FLAGS, "-o", path, *LINK],
                              capture_output=True, text=True)
    if compiled.returncode:
        return report(where, "does not compile:\n" + compiled.stderr)
    result = subprocess.run([path], cwd=folder, capture_output=True, text=True, timeout=60)
    if result.returncode:
        report(where, f"ends with {result.returncode}: {result.stdout}{result.stderr}")
    elif printed is not None:
        compare(where, printed, result.stdout)


def page(name, text, folder):
    """How many snippets of C and sessions it has, and its rows of tables."""
    rows, count, own = [], 0, tempfile.mkdtemp(dir=folder)
    blocks = fenced(text) if name.endswith(".md") else [(1, "c", opening(text), None)]
    for line, language, code, printed in blocks:
        where = f"{name}:{line}"
        if language == "console":
            session(where, code, own)
        elif language != "c":
            continue
        elif re.match("[A-Z]+\\(", code):
            rows.append((where, code))
            continue
        else:
            file = re.match(r"/\* (\w+\.c) \*/", code)
            if file:
                with open(os.path.join(own, file.group(1)), "w") as out:
                    out.write(code)
            run(where, code if "int main(" in code else whole(code, GIVEN.get(name, "")), own, printed)
        count += 1
    return count, rows


def table_rows(rows, folder):
    """(where, row) of ops.def and layers.def: added to copies of the tables, which opgen reads."""
    source = os.path.join(folder, "source")
    for table in ("src/op", "src/nn", "include", "tools"):
        shutil.copytree(os.path.join(ROOT, table), os.path.join(source, table))
    for where, row in rows:
        table = "src/nn/layers.def" if re.match("LAYER|BUILT", row) else "src/op/ops.def"
        with open(os.path.join(source, table), "a") as file:
            file.write(row)
    opgen = os.path.join(folder, "opgen")
    tools = [os.path.join(source, "tools", name) for name in os.listdir(os.path.join(source, "tools"))
             if re.match(r"opgen.*\.c$", name)]
    for command in (["cc", "-std=gnu11", "-O0", "-I" + source + "/src", *tools, "-o", opgen],
                    [opgen, source, folder]):
        made = subprocess.run(command, capture_output=True, text=True)
        if made.returncode:
            return report(", ".join(where for where, _ in rows), made.stderr)


def main():
    rows, count = [], 0
    with tempfile.TemporaryDirectory() as folder:
        files = ["README.md"] + ["docs/" + name for name in sorted(os.listdir(ROOT + "/docs"))]
        files += ["include/" + name for name in sorted(os.listdir(ROOT + "/include"))]
        for name in sys.argv[2:] or files:
            with open(os.path.join(ROOT, name)) as file:
                found, more = page(name, file.read(), folder)
            count, rows = count + found, rows + more
        table_rows(rows, folder)
    print(f"snippets: {count + len(rows)}, {failures} failed")
    return failures != 0


sys.exit(main())
