
/** One answer: asked for, shown while it comes, counted. */
class Run {
  constructor(view) {
    this.view = view;
    this.controller = new AbortController();
    this.begin = performance.now();
    this.first = null;  // time of the first tokens
    this.last = null;
    this.firstCount = 0;  // tokens that came with the first
    this.count = 0;       // tokens seen; 0 without probabilities
    this.usage = null;
    this.reason = null;
    this.stopString = null;
  }

  /** Until the end of the answer. Throws ApiError, or AbortError after stop(). */
  async follow(path, body, read) {
    const response = await api.send(path, { body, signal: this.controller.signal });
    for await (const event of eventsOf(response)) {
      if (event.usage) this.usage = event.usage;
      const choice = event.choices?.[0];
      if (choice === undefined) continue;
      const { text, tokens } = read(choice);
      if (text !== "" || tokens.length > 0) this.#arrived(text, tokens);
      if (choice.finish_reason) {
        this.reason = choice.finish_reason;
        this.stopString = typeof choice.stop_reason === "string" ? choice.stop_reason : null;
      }
    }
  }

  #arrived(text, tokens) {
    this.last = performance.now();
    this.count += tokens.length;
    if (this.first === null) {
      this.first = this.last;
      this.firstCount = Math.max(1, tokens.length);
    }
    this.view.push(text, tokens);
    this.showNumbers();
  }

  get tokens() {
    return this.usage?.completion_tokens ?? (this.count > 0 ? this.count : null);
  }

  get speed() {
    const later = (this.tokens ?? 0) - this.firstCount;
    return later > 0 && this.last > this.first ? (1000 * later) / (this.last - this.first) : null;
  }

  showNumbers() {
    const set = (id, text) => (byId(id).textContent = text);
    set("first-token", this.first === null ? "–" : shortTime((this.first - this.begin) / 1000));
    set("speed", this.speed === null ? "–" : `${shortNumber(this.speed)} tokens/s`);
    const prompt = this.usage?.prompt_tokens;
    set("count", this.tokens === null ? "–"
      : `${whole.format(this.tokens)}${prompt === undefined ? "" : ` (prompt: ${whole.format(prompt)})`}`);
  }

  /** For people who do not see the answer come. */
  summary() {
    const seconds = shortTime((performance.now() - this.begin) / 1000);
    const tokens = this.tokens === null ? "" : `${whole.format(this.tokens)} tokens, `;
    const why = {
      length: "the most tokens were reached",
      stop: this.stopString === null ? "the model ended it" : `found the stop string ${visible(this.stopString)}`,
    }[this.reason] ?? this.reason ?? "no reason given";
    return `Done: ${tokens}${seconds}; ${why}.`;
  }
}

const playground = {
  run: null,      // while there is one
  messages: [],   // of the chat so far: {role, content}

  start() {
    byId("output").dataset.empty = "Nothing yet.";
    byId("generate").addEventListener("click", () => this.generate());
    byId("stop").addEventListener("click", () => this.stop());
    byId("clear").addEventListener("click", () => this.clear());
    for (const radio of document.getElementsByName("mode"))
      radio.addEventListener("change", () => this.showMode());
    for (const range of document.querySelectorAll("[data-of]")) this.couple(range, byId(range.dataset.of));
    byId("probabilities").addEventListener("change", (event) => {
      byId("tint-legend").hidden = !event.target.checked;
    });
    document.addEventListener("keydown", (event) => this.key(event));
    this.showMode();
  },

  /** A slider and the number it stands for. */
  couple(range, number) {
    range.setAttribute("aria-label", `${number.labels[0].firstChild.textContent.trim()} slider`);
    range.value = number.value;
    range.addEventListener("input", () => (number.value = range.value));
    number.addEventListener("input", () => (range.value = number.value));
  },

  get chat() {
    return byId("mode-chat").checked;
  },

  showMode() {
    byId("system-row").hidden = byId("log").hidden = !this.chat;
    byId("output-part").hidden = this.chat;
    byId("input-label").textContent = this.chat ? "Message" : "Prompt";
    byId("generate").textContent = this.chat ? "Send" : "Generate";
  },

  /** What the server says of its chat template decides. */
  async findChat() {
    let info;
    try {
      info = await (await api.send("tokenizer_info")).json();
    } catch {
      return;
    }
    const none = info?.chat_template === null;
    byId("mode-chat").disabled = none;
    byId("chat-note").hidden = !none;
    if (none && this.chat) {
      byId("mode-completion").checked = true;
      this.showMode();
    }
  },

  key(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      this.generate();
    } else if (event.key === "Escape") {
      tip.hide();
      this.stop();
    } else if (TokenView.key(event)) {
      event.preventDefault();
    }
  },

  showError(text) {
    byId("error").textContent = text;
    byId("error").hidden = text === "";
  },

  /** Fields of the request; null when one is wrong, which is then shown and focused. */
  settings() {
    for (const input of document.querySelectorAll(".settings input[type=number]")) {
      if (input.checkValidity()) continue;
      const label = input.labels[0].firstChild.textContent.trim();
      this.showError(`${label}: ${input.validationMessage}`);
      input.focus();
      return null;
    }
    const number = (id) => byId(id).valueAsNumber;
    const fields = {
      temperature: number("temperature"),
      top_p: number("top-p"),
      top_k: number("top-k"),
      min_p: number("min-p"),
      max_tokens: number("max-tokens"),
      stream: true,
      stream_options: { include_usage: true },
    };
    if (byId("seed").value !== "") fields.seed = number("seed");
    const escapes = { n: "\n", t: "\t", "\\": "\\" };
    const stop = byId("stops").value.split("\n").filter((line) => line !== "")
      .map((line) => line.replace(/\\([nt\\])/g, (_, letter) => escapes[letter]));
    if (stop.length > 0) fields.stop = stop;
    return fields;
  },

  async generate() {
    if (this.run !== null) return;
    this.showError("");
    const fields = this.settings();
    if (fields === null) return;
    const probabilities = byId("probabilities").checked;
    const input = byId("input").value;
    if (this.chat) {
      if (input.trim() === "") {
        this.showError("Message: empty");
        byId("input").focus();
        return;
      }
      await this.say(input, fields, probabilities);
    } else {
      if (probabilities) fields.logprobs = 5;
      await this.follow(new TokenView(byId("output"), probabilities), "v1/completions", { prompt: input, ...fields },
        (choice) => ({ text: choice.text ?? "", tokens: tokensOfCompletion(choice.logprobs) }));
    }
  },

  /** A turn of the chat. One that fails with nothing said is taken back. */
  async say(input, fields, probabilities) {
    if (probabilities) Object.assign(fields, { logprobs: true, top_logprobs: 5 });
    const user = this.addMessage("user", "You");
    user.querySelector(".tokens").textContent = input;
    const answer = this.addMessage("assistant", "Model");
    const view = new TokenView(answer.querySelector(".tokens"), probabilities, byId("log"));
    byId("input").value = "";
    const system = byId("system").value;
    const messages = [...(system === "" ? [] : [{ role: "system", content: system }]), ...this.messages,
      { role: "user", content: input }];
    const good = await this.follow(view, "v1/chat/completions", { messages, ...fields },
      (choice) => ({ text: choice.delta?.content ?? "", tokens: tokensOfChat(choice.logprobs) }));
    if (!good && view.text === "") {
      user.remove();
      answer.remove();
      if (byId("input").value === "") byId("input").value = input;
    } else {
      this.messages.push({ role: "user", content: input }, { role: "assistant", content: view.text });
    }
  },

  addMessage(role, name) {
    const id = `message-${byId("log").childElementCount}`;
    const box = element("div", { class: "tokens", role: "group", "aria-labelledby": id, tabindex: "0" });
    const message = element("div", { class: `message ${role}` }, element("div", { class: "who", id }, name), box);
    byId("log").append(message);
    byId("log").scrollTop = byId("log").scrollHeight;
    return message;
  },

  /** Runs to the end; true if it got there. */
  async follow(view, path, body, read) {
    const run = new Run(view);
    this.run = run;
    this.showRunning(true);
    run.showNumbers();
    byId("status").textContent = "Generating…";
    let good = false;
    try {
      await run.follow(path, body, read);
      byId("status").textContent = run.summary();
      good = true;
    } catch (error) {
      const stopped = run.controller.signal.aborted;
      byId("status").textContent = stopped ? "Stopped." : "Failed.";
      if (!stopped) this.showError(error instanceof ApiError ? error.message : `${error}`);
    }
    view.finish();
    run.showNumbers();
    this.run = null;
    this.showRunning(false);
    modelCard.load();  // its shares of zeros have moved
    return good;
  },

  showRunning(running) {
    const generate = byId("generate"), stop = byId("stop");
    const focused = [generate, stop].includes(document.activeElement);
    generate.disabled = running;
    stop.disabled = !running;
    byId("clear").disabled = running;
    if (focused) (running ? stop : generate).focus();
  },

  stop() {
    this.run?.controller.abort();
  },

  clear() {
    this.messages = [];
    byId("log").replaceChildren();
    byId("output").replaceChildren();
    byId("status").textContent = "";
    this.showError("");
    byId("input").value = "";
    byId("input").focus();
  },
};
