#!/usr/bin/env python3
"""Wraps comment paragraphs that have a line over 100 columns. clang-format does the rest (make format).

Only whole lines of a block comment are touched: a comment behind code is its author's to shorten.
"""
import re
import sys
import textwrap

COLUMNS = 100


def paragraph(lines, start):
    """(indent and opener, text, lines taken) of the comment paragraph that begins at a line."""
    opening = re.match(r"^(\s*(?:/\*|\*) +)(\S.*)$", lines[start])
    words, taken = [opening.group(2)], 1
    while not words[-1].rstrip().endswith("*/") and start + taken < len(lines):
        more = re.match(r"^\s*\* (\S.*)$", lines[start + taken])
        if not more:
            break
        words.append(more.group(1))
        taken += 1
    return opening.group(1), " ".join(words), taken


def wrap(lines):
    out, at = [], 0
    while at < len(lines):
        if len(lines[at]) <= COLUMNS or not re.match(r"^\s*(/\*|\*) +\S", lines[at]):
            out.append(lines[at])
            at += 1
            continue
        lead, text, taken = paragraph(lines, at)
        star = lead.index("*")
        text = re.sub(r" \*/$", "\x01*/", text)  # the end stays with the last word
        wrapped = textwrap.wrap(text, width=COLUMNS, initial_indent=lead,
                                subsequent_indent=" " * star + "* ", break_long_words=False,
                                break_on_hyphens=False)
        out += [line.replace("\x01", " ") for line in wrapped]
        at += taken
    return out


for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as file:
        before = file.read()
    after = "\n".join(wrap(before.split("\n")))
    if after != before:
        with open(path, "w", encoding="utf-8") as file:
            file.write(after)
        print("wrapped", path)
