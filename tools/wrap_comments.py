#!/usr/bin/env python3
"""Moves what stands beyond column 100 of a block comment to the next line (make format).

Words that do not fit join the next line when that continues the same paragraph, else they get a line of
their own. A comment behind code goes on below itself, or in front of the line when there is no room.
Lines indented by four or more beyond the comment's text are drawings, which stay as they are.
"""
import re
import sys

COLUMNS = 100
DRAWING = 1 + 4  # spaces between the asterisk and what is drawn
LINE = re.compile(r"^(\s*(?:/\*|\*))( +)(\S.*)$")
BEHIND = re.compile(r"^([^/\"]*[^/\"\s]\s+/\*)( +)(\S.*)$")  # code, then a comment up to the end
RULER = re.compile(r"^(/\* ---- [^-]* )-+ \*/$")


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


def move_up(line):
    """A short comment that has no room behind its code stands in front of it."""
    code, comment = re.match(r"^(.*\S)\s+(/\*.*)$", line).groups()
    indent = re.match(r"\s*", line).group(0)
    return [indent + comment, code]


def is_drawing(line):
    match = LINE.match(line)
    return bool(match) and len(match.group(2)) >= DRAWING


def wrap(lines):
    lines, at = list(lines), 0
    while at < len(lines):
        line = lines[at]
        match = LINE.match(line) or BEHIND.match(line)
        ruler = RULER.match(line)
        if len(line) <= COLUMNS or not (match or ruler) or is_drawing(line):
            at += 1
            continue
        if ruler:
            lines[at] = ruler.group(1) + "-" * (COLUMNS - 3 - len(ruler.group(1))) + " */"
        elif len(match.group(1)) > 60:
            if line.rstrip().endswith("*/") and not line.startswith("#"):
                lines[at:at + 1] = move_up(line)
        elif line.rfind(" ", 0, COLUMNS) > len(match.group(1)) + 20:
            lines[at], rest = cut(line)
            item = re.match(r"\S+(?: \S+)?  +(?=\S)", match.group(3))
            indent = match.group(2) + " " * (len(item.group(0)) if item else 0)
            lead = " " * match.group(1).rindex("*") + "*" + indent
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
