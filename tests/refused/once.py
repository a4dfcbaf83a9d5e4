#!/usr/bin/env python3
"""Every argument of every public macro is evaluated once, in C and C++, whatever number of them it takes.

    once.py INCLUDE_FOLDER...

Each macro of the headers is written out by the preprocessor with marks as its arguments, 1 to 12 of them. What stands in
sizeof or in a text, and what a _Generic asks the type of, is not evaluated; a mark stands once in the rest. A macro that cannot take
that many arguments says so: the preprocessor has an error, or a name that does not exist is called."""
import re, subprocess, sys

HEADERS = ("carbide.h", "carbide_data.h")
MOST = 12
NO_CALL = re.compile(r'cb_too_few_arguments|"nine sizes"|MARK\d+_ *\(')


def preprocess(language, flags, text):
    command = [language[0], *language[1:], "-E", "-P", *flags, *["-I" + folder for folder in sys.argv[1:]], "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True)


def closing(text, at):
    """Behind the parenthesis that the one at `at` opens."""
    depth = 0
    while True:
        depth += (text[at] == "(") - (text[at] == ")")
        at += 1
        if depth == 0: return at


def evaluated(text):
    """Without what is not, texts of arguments among it."""
    text = re.sub(r'"(?:[^"\\\\]|\\\\.)*"', '""', text)
    while (found := re.search(r"\bsizeof *\(", text)):
        text = text[:found.start()] + text[closing(text, found.end() - 1):]
    at = 0
    while (found := re.compile(r"\b_Generic *\(").search(text, at)):
        at, end, depth = found.end(), found.end(), 0
        while depth or text[end] != ",":
            depth += (text[end] in "([{") - (text[end] in ")]}")
            end += 1
        text = text[:at] + text[end:]
    return text


def calls_of(macros):
    for name, parameters in macros:
        fixed = [p for p in parameters.replace(" ", "").split(",") if p and p != "..."]
        counts = range(max(1, len(fixed)), MOST + 1) if "..." in parameters else [len(fixed)] if fixed else []
        for count in counts: yield name, count


def check(language):
    includes = "".join(f"#include <{header}>\n" for header in HEADERS)
    macros = re.findall(r"^#define (cb_\w+)\(([^)]*)\)", preprocess(language, ["-dM"], includes).stdout, re.M)
    calls = list(calls_of(macros))
    lines = [f"@{name} {count}@{name}({', '.join(f'MARK{k}_' for k in range(count))})@" for name, count in calls]
    done = preprocess(language, [], includes + "\n".join(lines) + "\n")
    refused = {int(line) - len(HEADERS) - 1 for line in re.findall(r"^<stdin>:(\d+):.*error:", done.stderr, re.M)}
    written = dict(re.findall(r"@(cb_\w+ \d+)@([^@]*)@", done.stdout))
    tried, wrong = set(), 0
    for k, (name, count) in enumerate(calls):
        text = written.get(f"{name} {count}")
        if k in refused or text is None or NO_CALL.search(text): continue
        tried.add(name)
        rest = evaluated(text)
        times = [len(re.findall(rf"\bMARK{i}_", rest)) for i in range(count)]
        if times == [1] * count: continue
        print(f"{language[0]}: {name} with {count} arguments evaluates them {times} times: {rest}")
        wrong += 1
    missed = {name for name, count in calls} - tried
    for name in sorted(missed): print(f"{language[0]}: {name} was tried with no number of arguments")
    print(f"{language[0]}: {len(tried)} macros, {wrong} wrong")
    return not wrong and not missed and len(tried) > 500


sys.exit(0 if all([check(("cc", "-xc", "-std=gnu11")), check(("c++", "-xc++", "-std=c++11"))]) else 1)
