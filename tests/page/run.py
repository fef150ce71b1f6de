"""Runs the tests of the page in Debian's chromium, with the packages of requirements.txt.

    run.py                                         against the fake server
    run.py --serve build/asynct models/asynct-tiny against `build/asynct serve models/asynct-tiny`
    run.py --url http://127.0.0.1:8000             against one that runs
    run.py --artifacts DIR                         keeps screenshots
    run.py -k Chat -v                              what unittest takes
"""

import argparse
import contextlib
import os
import pathlib
import re
import subprocess
import sys
import threading
import unittest

from page_harness import Options


@contextlib.contextmanager
def serving(program, model):
    """The address of a server of our own."""
    command = [program, "serve", model, "--port", "0", "--no-access-log"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            lines = []
            for line in server.stdout:
                lines.append(line)
                if found := re.search(r"ready: (http://\S+)", line):
                    break
            else:
                sys.exit(f"{' '.join(command)} did not get ready:\n{''.join(lines)}")
            threading.Thread(target=server.stdout.read, daemon=True).start()  # never full
            yield found[1]
        finally:
            server.terminate()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="of a server that runs and has no other clients; default: a fake one")
    parser.add_argument("--serve", nargs=2, metavar=("PROGRAM", "MODEL"), help="a server to start and stop")
    parser.add_argument("--artifacts", help="folder for screenshots")
    parser.add_argument("--browser", default=Options.browser)
    args, rest = parser.parse_known_args()
    Options.artifacts, Options.browser = args.artifacts, args.browser
    if args.artifacts:
        os.makedirs(args.artifacts, exist_ok=True)
    here = str(pathlib.Path(__file__).resolve().parent)
    with serving(*args.serve) if args.serve else contextlib.nullcontext(args.url) as url:
        Options.url = url and url.rstrip("/") + "/"
        unittest.main(module=None, argv=[sys.argv[0], "discover", "-s", here, "-p", "*_test.py", *rest])


if __name__ == "__main__":
    main()
