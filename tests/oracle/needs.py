"""Ends with one line, and 77, which CTest counts as skipped, where Python lacks a package or cannot load it."""
import importlib, importlib.util, sys

DEBIAN = dict(numpy='python3-numpy', torch='python3-torch')

def need(*packages):
    for package in packages:
        if not importlib.util.find_spec(package):
            why = f'no {package} for {sys.executable} (Debian: {DEBIAN[package]})'
        else:
            try: importlib.import_module(package)
            except (ImportError, OSError) as error: why = f'{package} does not load in {sys.executable}: {error}'
            else: continue
        print(f'skipped: {why}', file=sys.stderr)
        sys.exit(77)
