"""The page of `asynct serve` in a headless browser, from the outside. run.py runs these."""

import re

from playwright.sync_api import expect

from fake_server import answer, text_of
from page_harness import Options, PageTest, Shared, fake_only

setUpModule, tearDownModule = Shared.start, Shared.stop


class Completion(PageTest):
    def test_streams_to_the_end(self):
        self.generate(max_tokens=60)
        expect(self.at("speed")).to_contain_text("tokens/s")
        expect(self.at("first-token")).to_contain_text(re.compile(r"\d (µs|ms|s)$"))
        expect(self.at("count")).to_contain_text(re.compile(r"^\d+ \(prompt: \d+\)$"))
        self.assertGreater(self.tokens().count(), 5)
        expect(self.at("output")).not_to_have_attribute("aria-busy", "true")
        expect(self.at("stop")).to_be_disabled()
        expect(self.at("error")).to_be_hidden()

    @fake_only
    def test_text_is_the_answers_whatever_the_tokens_hold(self):
        self.generate(max_tokens=60, prompt="a b c")
        self.assertEqual(self.at("output").evaluate("box => box.textContent"), text_of(60))
        # Markup of an answer is text.
        self.assertEqual(self.page.locator("#output img, #output b, #log img").count(), 0)
        # The fox is one piece of two tokens.
        self.assertEqual(self.tokens().nth(12).text_content(), " \U0001f98a")
        expect(self.at("count")).to_have_text("60 (prompt: 3)")
        expect(self.at("status")).to_contain_text("the most tokens were reached")

    @fake_only
    def test_shows_pieces_while_they_come(self):
        self.state.delay = 0.05
        self.generate(max_tokens=60, wait=False)
        self.wait_for_tokens(3)
        seen = self.tokens().count()
        self.assertLess(seen, 50)
        expect(self.at("output")).to_have_attribute("aria-busy", "true")
        expect(self.at("generate")).to_be_disabled()
        self.wait_for_tokens(seen + 5)
        self.at("stop").click()

    def test_stop(self):
        self.generate(max_tokens=1900, wait=False)
        self.wait_for_tokens(3)
        self.at("stop").click()
        expect(self.at("status")).to_have_text("Stopped.")
        expect(self.at("generate")).to_be_enabled()
        expect(self.at("error")).to_be_hidden()
        seen = self.tokens().count()
        self.page.wait_for_timeout(300)
        self.assertEqual(self.tokens().count(), seen)
        # The server notices.
        running = "() => /running 0,/.test(document.querySelectorAll('#charts figure > svg')[1].ariaLabel)"
        self.page.wait_for_function(running)
        self.generate(max_tokens=5)  # and the page goes on
        if self.fake:
            self.assertEqual(self.state.broken, 1)

    @fake_only
    def test_settings_travel(self):
        for name, value in {"temperature": "0.35", "top-p": "0.5", "top-k": "17", "min-p": "0.05", "seed": "42",
                            "stops": "END\n\\n\\n\n\nback\\\\slash"}.items():
            self.at(name).fill(value)
        self.generate(prompt="x", max_tokens=100)
        self.assertEqual(self.state.last_body(), {
            "prompt": "x", "temperature": 0.35, "top_p": 0.5, "top_k": 17, "min_p": 0.05, "max_tokens": 100,
            "seed": 42, "stop": ["END", "\n\n", "back\\slash"], "stream": True,
            "stream_options": {"include_usage": True}, "logprobs": 5})
        expect(self.at("status")).to_contain_text("found the stop string \u21b5\u21b5")
        self.assertEqual(self.tokens().count(), 24)  # 26 tokens, two make the fox, the stop string does not show

    @fake_only
    def test_without_probabilities(self):
        self.at("probabilities").uncheck()
        self.generate(max_tokens=30)
        self.assertNotIn("logprobs", self.state.last_body())
        self.assertEqual(self.tokens().count(), 0)
        self.assertEqual(self.at("output").evaluate("box => box.textContent"), text_of(30))
        expect(self.at("speed")).to_contain_text("tokens/s")  # from the usage

    def test_slider_and_number_are_one(self):
        slider = self.page.get_by_role("slider", name="Temperature slider")
        slider.focus()
        self.page.keyboard.press("End")
        expect(self.at("temperature")).to_have_value("2")
        self.at("temperature").fill("0.5")
        self.assertEqual(slider.input_value(), "0.5")

    @fake_only
    def test_long_answers(self):
        self.state.delay = 0
        self.generate(max_tokens=2000)
        self.assertEqual(self.at("output").evaluate("box => box.textContent"), text_of(2000))
        bottom = "box => box.scrollHeight - box.scrollTop - box.clientHeight"
        self.assertLess(self.at("output").evaluate(bottom), 2)  # it followed the text


class Probabilities(PageTest):
    def rows(self):
        expect(self.at("tip")).to_be_visible()
        return self.at("tip").locator("tr")

    def test_hover(self):
        self.generate(max_tokens=20)
        self.tokens().nth(2).hover()
        rows = self.rows()
        self.assertIn(rows.count(), (5, 6))
        shares = [float(re.search(r"([\d.]+) %", text)[1]) for text in rows.all_inner_texts()]
        self.assertEqual(shares[:5], sorted(shares[:5], reverse=True))
        self.assertLessEqual(sum(shares), 100.5)
        self.assertEqual(self.at("tip").locator("tr.drawn").count(), 1)
        self.screenshot("tooltip", full=False)
        self.page.keyboard.press("Escape")
        expect(self.at("tip")).to_be_hidden()

    @fake_only
    def test_numbers_are_the_servers(self):
        self.at("seed").fill("7")
        self.generate(max_tokens=20)
        expected = list(answer(20, 7))
        for i in (0, 5, 11):
            self.tokens().nth(i).hover()
            share = 100 * 2.718281828459045 ** expected[i][2]
            shown = float(re.search(r"([\d.]+) %", self.at("tip").locator("strong").inner_text())[1])
            self.assertAlmostEqual(shown, share, delta=0.051)
            # The tint says the same: ten steps.
            self.assertRegex(self.tokens().nth(i).get_attribute("class"), rf"\bp{int(share / 10)}\b")
        self.tokens().nth(12).hover()
        expect(self.at("tip")).to_contain_text("2 tokens")
        self.page.mouse.move(5, 5)
        expect(self.at("tip")).to_be_hidden()

    def test_keyboard(self):
        self.generate(max_tokens=20)
        self.at("output").focus()
        self.page.keyboard.press("ArrowRight")
        expect(self.tokens().nth(0)).to_be_focused()
        self.rows()
        expect(self.tokens().nth(0)).to_have_attribute("aria-describedby", "tip")
        self.page.keyboard.press("ArrowRight")
        expect(self.tokens().nth(1)).to_be_focused()
        self.page.keyboard.press("End")
        expect(self.tokens().last).to_be_focused()
        self.page.keyboard.press("Home")
        expect(self.tokens().nth(0)).to_be_focused()
        self.assertEqual(self.page.locator("#output[tabindex='0'], #output .t[tabindex='0']").count(), 1)
        self.assertRegex(self.tokens().nth(0).get_attribute("aria-label"), r", [\d.<]+ %$")
        self.page.keyboard.press("Tab")
        expect(self.at("tip")).to_be_hidden()


class Chat(PageTest):
    def send(self, text):
        self.at("input").fill(text)
        self.page.keyboard.press("Control+Enter")  # disables the button before it returns
        expect(self.at("generate")).to_be_enabled()

    @fake_only
    def test_turns(self):
        self.at("mode-chat").check()
        self.at("max-tokens").fill("25")
        self.at("system").fill("Be short.")
        self.send("Hello")
        self.wait_for_end()
        self.send("Go on")
        self.wait_for_end()
        self.assertEqual(self.state.last_body()["messages"], [
            {"role": "system", "content": "Be short."}, {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": text_of(25)}, {"role": "user", "content": "Go on"}])
        self.assertEqual(self.state.last_body()["top_logprobs"], 5)
        self.assertEqual(self.page.locator(".message").count(), 4)
        self.page.locator(".message.assistant").last.locator(".t").nth(1).hover()
        expect(self.at("tip")).to_contain_text("%")
        self.screenshot("chat")
        self.at("clear").click()
        self.assertEqual(self.page.locator(".message").count(), 0)

    @fake_only
    def test_a_failed_turn_is_taken_back(self):
        self.allowed_console = "400"
        self.at("mode-chat").check()
        self.at("max-tokens").fill("10")
        self.send("REFUSE this")
        expect(self.at("error")).to_contain_text("max_tokens")
        expect(self.at("input")).to_have_value("REFUSE this")
        self.assertEqual(self.page.locator(".message").count(), 0)
        self.send("Hello")
        self.assertEqual(len(self.state.last_body()["messages"]), 1)
        self.at("input").fill("  ")
        self.at("generate").click()
        expect(self.at("error")).to_have_text("Message: empty")

    @fake_only
    def test_stopped_turn_stays(self):
        self.at("mode-chat").check()
        self.at("max-tokens").fill("500")
        self.at("input").fill("Hello")
        self.page.keyboard.press("Control+Enter")
        self.wait_for_tokens(4, ".message.assistant")
        self.page.keyboard.press("Escape")
        expect(self.at("status")).to_have_text("Stopped.")
        said = self.page.locator(".message.assistant .tokens").evaluate("box => box.textContent")
        self.at("max-tokens").fill("5")
        self.send("More")
        self.assertEqual(self.state.last_body()["messages"][1], {"role": "assistant", "content": said})

    def test_one_turn(self):
        if not self.has_chat():
            self.skipTest("this model has no chat template")
        self.at("mode-chat").check()
        self.at("max-tokens").fill("20")
        self.send("Hello")
        self.wait_for_end()
        self.assertGreater(self.tokens(".message.assistant").count(), 3)


class NoChat(PageTest):
    def prepare(self):
        if self.fake:
            self.state.chat_template = None

    def test_says_so(self):
        if self.has_chat():
            self.skipTest("this model has a chat template")
        expect(self.at("chat-note")).to_be_visible()
        expect(self.at("mode-chat")).to_be_disabled()


class Errors(PageTest):
    def test_of_the_servers_json(self):
        self.allowed_console = "400"
        self.at("input").fill("REFUSE" if self.fake else "word " * 4000)
        self.at("max-tokens").fill("50")
        self.at("generate").click()
        expect(self.at("error")).to_contain_text("max_tokens: 5000, expected at most <b>2048</b>" if self.fake
                                                 else "maximum context length")
        expect(self.at("status")).to_have_text("Failed.")
        self.screenshot("error", full=False)
        self.generate(max_tokens=5)
        expect(self.at("error")).to_be_hidden()

    @fake_only
    def test_amid_the_stream(self):
        for word, message in {"BREAK": "the engine <i>failed</i>", "CUT": "The connection broke"}.items():
            with self.subTest(word):
                self.allowed_console = "ERR_INCOMPLETE_CHUNKED_ENCODING"
                self.generate(word, wait=False)
                if word == "CUT":  # when a connection breaks, a browser drops what it has not handed over
                    self.wait_for_tokens(5)
                    self.state.may_cut.set()
                expect(self.at("error")).to_contain_text(message)
                expect(self.at("status")).to_have_text("Failed.")
                self.assertEqual(self.at("output").evaluate("box => box.textContent"), text_of(5))

    @fake_only
    def test_server_gone(self):
        self.allowed_console = "ERR_CONNECTION_REFUSED|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET"
        expect(self.at("server-state")).to_have_text("live")
        self.fake.stop()
        self.page.route("**/*", lambda route: route.abort("connectionrefused"))
        self.generate(wait=False)
        expect(self.at("error")).to_contain_text("No answer from the server")
        expect(self.at("server-state")).to_contain_text("Trying again")

    def test_wrong_settings_do_not_leave_the_page(self):
        before = len([url for url in self.requests if "/v1/" in url])
        for name, value in {"top-p": "3", "max-tokens": "0", "top-k": "1.5", "temperature": ""}.items():
            good = self.at(name).input_value()
            self.at(name).fill(value)
            self.at("generate").click()
            expect(self.at("error")).to_be_visible()
            expect(self.at(name)).to_be_focused()
            self.at(name).fill(good)
        self.assertEqual(len([url for url in self.requests if "/v1/" in url]), before)


class ApiKey(PageTest):
    def prepare(self):
        if self.fake is None:
            self.skipTest("needs the fake server")
        self.state.api_key = "secret"

    def test_is_sent_and_not_kept(self):
        self.allowed_console = "401"
        expect(self.at("server-state")).to_contain_text("API key")
        self.generate(wait=False)
        expect(self.at("error")).to_contain_text("API key")
        self.at("key").fill("wr\u00f6ng")
        self.at("generate").click()
        expect(self.at("error")).to_contain_text("ASCII")
        self.at("key").fill("secret")
        self.generate(max_tokens=5)
        expect(self.at("server-state")).to_have_text("live")
        expect(self.at("model-name")).to_have_text("models/fake-tiny")
        stores = "() => localStorage.length + sessionStorage.length + document.cookie.length"
        self.assertEqual(self.page.evaluate(stores), 0)


class ServerCharts(PageTest):
    def label(self, i):
        return self.page.locator("#charts figure > svg").nth(i).get_attribute("aria-label")

    def test_they_move(self):
        self.assertEqual(self.page.locator("#charts figure").count(), 6)
        expect(self.at("server-state")).to_have_text("live")
        self.generate(max_tokens=300, wait=False)
        moved = "i => /generated [1-9]/.test(document.querySelectorAll('#charts figure > svg')[i].ariaLabel)"
        self.page.wait_for_function(moved, arg=0)
        self.wait_for_end()
        self.page.wait_for_timeout(2500)
        self.assertRegex(self.label(0), r"^Tokens per second: generated .*most in two minutes: [\d.,]+")
        self.assertRegex(self.label(1), r"running \d+, waiting \d+")
        self.assertRegex(self.label(2), r"share [\d.]+ %")
        self.assertRegex(self.label(3), r"since start [\d.]+ %")
        self.assertRegex(self.label(4), r"p50 [\d.]+ (µs|ms|s), p99 [\d.]+ (µs|ms|s)")
        self.assertRegex(self.label(5), r"p50 [\d.]+ (µs|ms|s), p99 [\d.]+ (µs|ms|s)")
        path = self.page.locator("#charts figure > svg path.s0:not(.dot)").first.get_attribute("d")
        self.assertGreater(path.count("L"), 1)
        # Each line's end stays inside of the picture.
        for x, y in re.findall(r"[ML]([\d.-]+) ([\d.-]+)", path):
            self.assertTrue(50 <= float(x) <= 316 and 0 <= float(y) <= 132, (x, y))

    def polls(self):
        return sum(url.endswith("/metrics") for url in self.requests)

    def test_nobody_looks_nobody_asks(self):
        expect(self.at("server-state")).to_have_text("live")
        hide = """hidden => {
            Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }"""
        self.page.evaluate(hide, True)
        before = self.polls()
        self.page.wait_for_timeout(2500)
        self.assertEqual(self.polls(), before)
        self.page.evaluate(hide, False)
        self.page.wait_for_timeout(2500)
        self.assertIn(self.polls() - before, (2, 3, 4))
        self.at("pause").click()
        before = self.polls()
        self.page.wait_for_timeout(2500)
        self.assertEqual(self.polls(), before)
        expect(self.at("server-state")).to_have_text("paused")
        expect(self.at("pause")).to_have_attribute("aria-pressed", "true")


class NoMetrics(PageTest):
    def prepare(self):
        if self.fake is None:
            self.skipTest("needs the fake server")
        self.state.metrics_status = 404
        self.state.model_info = None
        self.allowed_console = "404"

    def test_parts_are_not_shown(self):
        expect(self.at("server")).to_be_hidden()
        expect(self.at("model")).to_be_hidden()
        self.generate(max_tokens=5)
        self.page.wait_for_timeout(1500)
        self.assertEqual((self.state.count("/metrics"), self.state.count("/model_info")), (1, 1))


class ModelCard(PageTest):
    def test_is_shown(self):
        expect(self.at("model")).to_be_visible()
        text = self.at("model-table").inner_text()
        for word in ("Parameters", "KV cache of a token", "Layers", "Context length"):
            self.assertIn(word, text)
        expect(self.at("heads-part")).to_be_visible()
        self.at("heads-part").locator("summary").click()
        self.assertEqual(self.at("heads-part").locator("tbody tr").count(), 8)
        self.generate(max_tokens=10)
        expect(self.at("zeros-part")).to_be_visible()
        expect(self.at("zeros-part").locator("rect").first).to_be_visible()
        # Asked again after a run: what was opened stays open.
        expect(self.at("heads-part").locator("table")).to_be_visible()
        expect(self.at("model-name")).not_to_be_empty()


class PartsOfAModelCard(PageTest):
    def prepare(self):
        if self.fake is None:
            self.skipTest("needs the fake server")
        self.state.model_info = {"name": "<b>x</b>", "layers": 2, "head_classes": None, "zero_shares": [None, None],
                                 "heads": {"a": 1}, "kernels": None}

    def test_what_is_missing_is_not_shown(self):
        expect(self.at("model")).to_be_visible()
        self.assertEqual(self.at("model-table").locator("th").all_inner_texts(), ["Name", "Layers"])
        expect(self.at("model-name")).to_have_text("<b>x</b>")
        expect(self.at("heads-part")).to_be_hidden()
        expect(self.at("zeros-part")).to_be_hidden()


# Contrast of each text with what lies behind it, as the browser paints the colors.
CONTRAST = """() => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const paint = canvas.getContext("2d", { willReadFrequently: true });
  const pixel = (colors) => {
    for (const color of colors) { paint.fillStyle = color; paint.fillRect(0, 0, 1, 1); }
    return [...paint.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const bad = [];
  let seen = 0;
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim() !== "");
    if (!own || !node.checkVisibility() || node.disabled || ["SCRIPT", "STYLE"].includes(node.tagName)) continue;
    const behind = [];
    for (let at = node; at; at = at.parentElement) behind.unshift(getComputedStyle(at).backgroundColor);
    const style = getComputedStyle(node);
    const color = node.namespaceURI.endsWith("svg") ? style.fill : style.color;
    const [a, b] = [light(pixel(behind)), light(pixel([...behind, color]))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    ++seen;
    if (ratio < 4.5) bad.push(`${node.tagName} ${node.className} "${node.textContent.slice(0, 20)}" ${ratio.toFixed(2)}`);
  }
  return { bad, seen };
}"""


class Looks(PageTest):
    def check_contrast(self):
        found = self.page.evaluate(CONTRAST)
        self.assertEqual(found["bad"], [])
        self.assertGreater(found["seen"], 80)

    def test_dark_light_and_the_button(self):
        self.allowed_console = "400"
        self.at("seed").fill("3")
        self.generate(max_tokens=60)
        self.at("input").fill("REFUSE" if self.fake else "word " * 4000)
        self.at("generate").click()  # for the error's colors
        expect(self.at("error")).to_be_visible()
        self.generate(max_tokens=60)
        self.page.wait_for_timeout(2500)
        back = "() => getComputedStyle(document.body).backgroundColor"
        colors = {}
        for scheme in ("light", "dark"):
            self.page.emulate_media(color_scheme=scheme)
            expect(self.at("theme")).to_have_attribute("aria-pressed", str(scheme == "dark").lower())
            self.at("error").evaluate("(box) => { box.hidden = false; box.textContent = 'An error'; }")
            self.tokens().nth(3).hover()
            self.check_contrast()
            self.page.mouse.move(5, 5)
            self.at("error").evaluate("(box) => { box.hidden = true; }")
            expect(self.at("tip")).to_be_hidden()
            colors[scheme] = self.page.evaluate(back)
            self.screenshot(scheme)
        self.assertNotEqual(colors["light"], colors["dark"])
        self.at("theme").click()
        self.assertEqual(self.page.evaluate(back), colors["light"])
        self.page.emulate_media(color_scheme="light")
        self.at("theme").click()
        self.assertEqual(self.page.evaluate(back), colors["dark"])
        expect(self.at("theme")).to_have_attribute("aria-pressed", "true")

    def test_while_streaming(self):
        if self.fake:
            self.state.delay = 0.03
        self.generate(max_tokens=1500, wait=False)
        self.wait_for_tokens(60)
        self.page.wait_for_timeout(1500 if self.fake else 200)
        self.screenshot("streaming")
        self.page.keyboard.press("Escape")
        expect(self.at("status")).to_have_text(re.compile("Stopped|Done"))

    def test_reduced_motion(self):
        self.page.emulate_media(reduced_motion="reduce")
        self.at("output").evaluate("box => box.setAttribute('aria-busy', 'true')")
        animation = "box => getComputedStyle(box, '::after').animationName"
        self.assertEqual(self.at("output").evaluate(animation), "none")
        self.page.emulate_media(reduced_motion="no-preference")
        self.assertEqual(self.at("output").evaluate(animation), "blink")

    def test_every_control_has_a_name(self):
        unnamed = self.page.evaluate("""() => [...document.querySelectorAll("input, textarea, button")]
            .filter((box) => !(box.labels?.length > 0 || box.ariaLabel || box.textContent.trim() !== "" &&
                               box.tagName === "BUTTON")).map((box) => box.outerHTML)""")
        self.assertEqual(unnamed, [])
        svgs = self.page.locator("svg:not([aria-label]):not([aria-hidden])")
        self.assertEqual(svgs.count(), 0)


class Narrow(PageTest):
    context_options = {"viewport": {"width": 360, "height": 740}, "has_touch": True}

    def test_fits(self):
        self.generate(max_tokens=40)
        self.page.wait_for_timeout(1500)
        self.assertLessEqual(self.page.evaluate("() => document.documentElement.scrollWidth"), 360)
        self.screenshot("narrow")
        self.at("output").scroll_into_view_if_needed()
        self.tokens().nth(5).tap()
        expect(self.at("tip")).to_be_visible()
        box = self.at("tip").bounding_box()
        self.assertTrue(box["x"] >= 0 and box["x"] + box["width"] <= 360, box)
        self.screenshot("narrow_tooltip", full=False)


class Keyboard(PageTest):
    def test_all_of_it_without_a_pointer(self):
        keys = self.page.keyboard
        keys.press("Tab")
        self.assertEqual(self.page.evaluate("() => document.activeElement.className"), "skip")
        keys.press("Enter")
        expect(self.at("input")).to_be_focused()
        keys.press("Control+a")
        keys.type("The sun is")
        expect(self.at("input")).to_have_value("The sun is")
        keys.press("Control+Enter")
        self.wait_for_tokens(3)
        keys.press("Escape")
        expect(self.at("status")).to_have_text(re.compile("Stopped|Done"))
        seen, lost = set(), []
        for _ in range(60):
            keys.press("Tab")
            name, outline = self.page.evaluate("""() => {
                const box = document.activeElement;
                return [box.id || box.dataset.of || box.className, getComputedStyle(box).outlineStyle];
            }""")
            if outline == "none":
                lost.append(name)
            seen.add(name)
        self.assertEqual([name for name in lost if name], [])
        for name in ("key", "theme", "input", "generate", "clear", "output", "temperature", "top-p", "top-k", "min-p",
                     "max-tokens", "seed", "stops", "probabilities", "pause"):
            self.assertIn(name, seen)

    @fake_only
    def test_focus_follows_the_buttons(self):
        self.state.delay = 0.03
        self.at("max-tokens").fill("500")
        self.at("generate").focus()
        self.page.keyboard.press("Enter")
        expect(self.at("stop")).to_be_focused()
        self.page.keyboard.press("Enter")
        expect(self.at("generate")).to_be_focused()


class Policy(PageTest):
    def test_the_header_is_strict(self):
        policy = self.page.request.get(self.url).headers["content-security-policy"]
        self.assertIn("default-src 'none'", policy)
        self.assertNotIn("unsafe", policy)

    def test_nothing_else_runs_or_leaves(self):
        self.allowed_console = "Content Security Policy"
        ran = self.page.evaluate("""async () => {
            const script = document.createElement("script");
            script.textContent = "window.ran = true";
            document.body.append(script);
            const image = document.createElement("img");
            image.setAttribute("onerror", "window.ran = true");
            image.src = "data:,x";
            document.body.append(image);
            const left = await fetch("http://127.0.0.2:9/").then(() => true, () => false);
            await new Promise((resolve) => setTimeout(resolve, 200));
            return [window.ran === true, left];
        }""")
        self.assertEqual(ran, [False, False])
        self.assertGreaterEqual(len([text for _, text in self.console if "Content Security Policy" in text]), 3)
        self.requests = [url for url in self.requests if "127.0.0.2" not in url]
