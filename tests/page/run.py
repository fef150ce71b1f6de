"""Runs the tests of the page in Debian's chromium, with the packages of requirements.txt.

    run.py                              against the fake server
    run.py --url http://127.0.0.1:8000  against one that runs
    run.py --artifacts DIR              keeps screenshots
    run.py -k Chat -v                   what unittest takes
"""

import argparse
import os
import pathlib
import sys
import unittest

from page_harness import Options


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="of a server that runs and has no other clients; default: a fake one")
    parser.add_argument("--artifacts", help="folder for screenshots")
    parser.add_argument("--browser", default=Options.browser)
    args, rest = parser.parse_known_args()
    Options.url = args.url and args.url.rstrip("/") + "/"
    Options.artifacts, Options.browser = args.artifacts, args.browser
    if args.artifacts:
        os.makedirs(args.artifacts, exist_ok=True)
    here = str(pathlib.Path(__file__).resolve().parent)
    unittest.main(module=None, argv=[sys.argv[0], "discover", "-s", here, "-p", "*_test.py", *rest])


if __name__ == "__main__":
    main()
