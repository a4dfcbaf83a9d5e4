#!/usr/bin/env python3
"""What the tests reach: lines and branches of src, from gcov's counts.

    tools/coverage.py BUILD [--missed] [--least PERCENT] [FILE ...]

BUILD is a build folder of `make coverage` after the tests ran there. Prints a line per folder, the total, and with
--missed every branch that no test took, as FILE:LINE and the source. A file that is compiled for several instruction
sets counts once: a branch is taken when any level took it.

A side that no test can take is left out where the source says why, in a comment on the line that branches:
    if (!thing) return; /* untested: the reason */
So is the failing side of check(), with the default of a switch that holds nothing else: it is a bug of ours, and ends
the process; the side of a switch without a default that is none of its cases, which are all enumerators (-Wswitch); and
where a call may end by an exception (-fexceptions), which C never throws. Ends with 1 below --least, or when a comment of
this kind has no reason or stands on a line whose sides are all taken."""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MARK = re.compile(r"/\* untested: ?(.*?)(\*/|$)")


def read_counts(build):
    """file -> line -> ([count of each branch], count), merged over the objects that hold the file."""
    lines = collections.defaultdict(dict)
    for note in sorted(pathlib.Path(build).resolve().glob("CMakeFiles/**/*.gcda")):
        result = subprocess.run(["gcov", "-b", "-j", "-t", note], cwd=build, check=True, capture_output=True)
        for file in json.loads(result.stdout)["files"]:
            add_file(lines, file)
    return lines


def add_file(lines, file):
    path = pathlib.Path(file["file"])
    path = (path if path.is_absolute() else ROOT / path).resolve()
    if ROOT / "src" not in path.parents:
        return
    found = lines[str(path.relative_to(ROOT))]
    for line in file["lines"]:
        counts = [branch["count"] for branch in line["branches"] if not branch.get("throw")]
        old = found.get(line["line_number"])
        if old and len(old[0]) == len(counts):
            counts = [a + b for a, b in zip(old[0], counts)]
        elif old:  # the compiler made other branches of it at this level: the level that knows more counts
            counts = max(old[0], counts, key=lambda c: (sum(1 for n in c if n), -len(c)))
        found[line["line_number"]] = (counts, line["count"] + (old[1] if old else 0))


def find_defaults(text):
    """(lines of defaults that are check(false), those of their switches): no value that there is leads there"""
    lines, switches = set(), set()
    for k, source in enumerate(text):
        if not source.strip().startswith("check(false,"):
            continue
        lines.add(k + 1)
        if text[k - 1].strip() != "default:":
            continue
        lines.add(k)
        start = text[k - 1].index("default:") * " " + "switch ("
        switches.add(max(i for i in range(k) if text[i].startswith(start)) + 1)
    return lines, switches | {k + 1 for k, source in enumerate(text) if lists_enumerators(text, k)}


def lists_enumerators(text, k):
    """a switch opens in this line, and each of its labels is a case of an enumerator"""
    if not text[k].lstrip().startswith("switch ("):
        return False
    indent = text[k][:len(text[k]) - len(text[k].lstrip())]
    end = next(i for i in range(k, len(text)) if text[i].startswith(indent + "}"))
    labels = [s for s in text[k + 1:end] if re.match(indent + r"(case |default:)", s)]
    return all(re.match(indent + "case [A-Z]\\w+:", label) for label in labels)


def judge(path, found):
    """(lines, lines reached, branches, branches taken, missed [(line, text, missed)], wrong marks)"""
    text = (ROOT / path).read_text().split("\n")
    total = [0, 0, 0, 0]
    missed, wrong = [], []
    defaults, switches = find_defaults(text)
    for number, (counts, count) in sorted(found.items()):
        source = text[number - 1] if number <= len(text) else ""
        mark = MARK.search(source)
        open_sides = sum(1 for n in counts if not n)
        if mark and (not mark.group(1).strip() or (not open_sides and count)):
            wrong.append(f"{path}:{number}: {'every side is taken' if mark.group(1).strip() else 'no reason'}")
        if mark:
            continue
        if re.match(r"\s*check\(", source) and count:
            counts = [n for n in counts if n]
            open_sides = 0
        if number in defaults and not count:
            continue
        if number in switches and 0 in counts:
            counts.remove(0)
            open_sides -= 1
        total[0] += 1
        total[1] += count > 0
        total[2] += len(counts)
        total[3] += len(counts) - open_sides
        if open_sides or not count:
            missed.append((number, source.strip(), open_sides))
    return total, missed, wrong


def percent(part, whole):
    return 100.0 * part / whole if whole else 100.0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--missed", action="store_true")
    parser.add_argument("--least", type=float, default=0)
    parser.add_argument("file", nargs="*", help="only these (beginnings of paths)")
    options = parser.parse_intermixed_args()
    folders = collections.defaultdict(lambda: [0, 0, 0, 0])
    everything, all_wrong = [0, 0, 0, 0], []
    for path, found in sorted(read_counts(options.build).items()):
        if options.file and not any(path.startswith(f) for f in options.file):
            continue
        total, missed, wrong = judge(path, found)
        all_wrong += wrong
        for into in (folders[str(pathlib.Path(path).parent)], everything):
            for k in range(4):
                into[k] += total[k]
        if options.missed:
            for number, source, sides in missed:
                print(f"{path}:{number}: {sides or 'line'}: {source}")
    for name, t in [*sorted(folders.items()), ("all", everything)]:
        print(f"{name:14} lines {t[1]:6}/{t[0]:<6} {percent(t[1], t[0]):5.1f} %   "
              f"branches {t[3]:6}/{t[2]:<6} {percent(t[3], t[2]):5.1f} %")
    for line in all_wrong:
        print(f"{line}: a comment 'untested' that does not hold")
    return 1 if all_wrong or percent(everything[3], everything[2]) < options.least else 0


if __name__ == "__main__":
    sys.exit(main())
