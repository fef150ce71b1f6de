"""A browser, a server, and what every test of the page watches: the console, and where requests go."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest
from urllib.parse import urlsplit

from playwright.sync_api import expect, sync_playwright

from fake_server import FakeServer

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "src" / "asynct" / "serve" / "page"


class Options:
    url = None        # of a real server; None: a fake one
    artifacts = None  # a folder for screenshots
    browser = shutil.which("chromium") or "/usr/bin/chromium"


class Shared:
    """One browser and one built page for all tests."""

    playwright = browser = page_dir = None

    @classmethod
    def start(cls):
        cls.playwright = sync_playwright().start()
        # The sandbox does not work for root in a container; the page is ours.
        sandbox = [] if os.getuid() else ["--no-sandbox"]
        cls.browser = cls.playwright.chromium.launch(executable_path=Options.browser, args=sandbox)
        if Options.url is None:
            cls.page_dir = tempfile.TemporaryDirectory()
            subprocess.run(["cmake", f"-DSOURCE={SOURCE}", f"-DOUT={cls.page_dir.name}", "-P",
                            str(SOURCE / "embed_page.cmake")], check=True)

    @classmethod
    def stop(cls):
        cls.browser.close()
        cls.playwright.stop()
        if cls.page_dir is not None:
            cls.page_dir.cleanup()


class PageTest(unittest.TestCase):
    """Opens the page before each test. After it: nothing but `allowed_console` may be in the console, and all
    requests went to the page's origin."""

    context_options = {}

    def setUp(self):
        self.fake = None if Options.url else FakeServer(Shared.page_dir.name)
        if self.fake is not None:
            self.addCleanup(self.fake.stop)
            self.state = self.fake.state
        self.url = Options.url or self.fake.url
        self.allowed_console = None
        self.console, self.requests = [], []
        self.context = Shared.browser.new_context(**{"viewport": {"width": 1280, "height": 900},
                                                     **self.context_options})
        self.addCleanup(self.context.close)
        self.prepare()
        self.open()

    def prepare(self):
        """For what has to be before the page is opened."""

    def open(self):
        self.page = self.context.new_page()
        self.page.set_default_timeout(15_000)
        self.page.on("console", lambda message: self.console.append((message.type, message.text)))
        self.page.on("pageerror", lambda error: self.console.append(("error", str(error))))
        self.page.on("request", lambda request: self.requests.append(request.url))
        if Options.url:
            self.page.route("**/v1/*completions", self.never_end)
        self.page.goto(self.url)

    @staticmethod
    def never_end(route):
        """A model may end its answer after any token; what the tests wait for needs max_tokens of them."""
        route.continue_(post_data=json.dumps({**json.loads(route.request.post_data), "ignore_eos": True}))

    def tearDown(self):
        bad = [text for kind, text in self.console if kind in ("error", "warning")
               and not (self.allowed_console and re.search(self.allowed_console, text))]
        self.assertEqual(bad, [])
        origin = urlsplit(self.url).netloc
        self.assertEqual([url for url in self.requests
                          if urlsplit(url).scheme != "data" and urlsplit(url).netloc != origin], [])

    def screenshot(self, name, full=True):
        if Options.artifacts:
            self.page.screenshot(path=str(pathlib.Path(Options.artifacts) / f"{name}.png"), full_page=full)

    def at(self, name):
        return self.page.locator(f"#{name}")

    def has_chat(self):
        return self.page.request.get(f"{self.url}tokenizer_info").json()["chat_template"] is not None

    def generate(self, prompt="Once upon a time", max_tokens=40, wait=True):
        self.at("input").fill(prompt)
        self.at("max-tokens").fill(str(max_tokens))
        self.at("generate").click()
        if wait:
            self.wait_for_end()

    def wait_for_end(self):
        expect(self.at("status")).to_contain_text("Done:", timeout=60_000)

    def tokens(self, box="#output"):
        return self.page.locator(f"{box} .t")

    def wait_for_tokens(self, count, box="#output"):
        self.page.wait_for_function("([box, count]) => document.querySelectorAll(box + ' .t').length >= count",
                                    arg=[box, count])


def fake_only(test):
    return unittest.skipIf(Options.url, "needs the fake server")(test)
