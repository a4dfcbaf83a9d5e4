"""Ends with one line, and 77, which CTest counts as skipped, where Python lacks a package."""
import importlib.util, sys

DEBIAN = dict(numpy='python3-numpy', torch='python3-torch')

def need(*packages):
    for package in packages:
        if importlib.util.find_spec(package): continue
        print(f'skipped: no {package} for {sys.executable} (Debian: {DEBIAN[package]})', file=sys.stderr)
        sys.exit(77)
