#!/usr/bin/env python3
"""Moves what stands beyond column 100 of a block comment to the next line (make format).

Only whole lines of comments are touched: a comment behind code is its author's to shorten. Words that
do not fit join the next line when that continues the same paragraph, else they get a line of their own.
"""
import re
import sys

COLUMNS = 100
LINE = re.compile(r"^(\s*(?:/\*|\*))( +)(\S.*)$")


def cut(line):
    """The part of a line up to column 100 and the words beyond; a final */ stays with its word."""
    line = re.sub(r" \*/$", "\x01*/", line.rstrip())
    at = line.rfind(" ", 0, COLUMNS + 1)
    return line[:at].rstrip().replace("\x01", " "), line[at:].strip().replace("\x01", " ")


def continues(line, indent):
    match = LINE.match(line)
    if not match or "/*" in match.group(1) or match.group(3) == "*/":
        return False
    return match.group(2) == indent and not re.match(r"\S+(?: \S+)?  +\S|- ", match.group(3))


def wrap(lines):
    lines, at = list(lines), 0
    while at < len(lines):
        match = LINE.match(lines[at])
        if len(lines[at]) > COLUMNS and match and lines[at].rfind(" ", 0, COLUMNS) > len(match[1]) + 20:
            lines[at], rest = cut(lines[at])
            star = match.group(1).index("*")
            item = re.match(r"\S+(?: \S+)?  +(?=\S)", match.group(3))
            indent = match.group(2) + " " * (len(item.group(0)) if item else 0)
            lead = " " * star + "*" + indent
            if not rest.endswith("*/") and at + 1 < len(lines) and continues(lines[at + 1], indent):
                lines[at + 1] = lead + rest + " " + LINE.match(lines[at + 1]).group(3)
            else:
                lines.insert(at + 1, lead + rest)
        at += 1
    return lines


for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as file:
        before = file.read()
    after = "\n".join(wrap(before.split("\n")))
    if after != before:
        with open(path, "w", encoding="utf-8") as file:
            file.write(after)
        print("wrapped", path)
