
/**
 * A token of an answer: {text, logprob, tops: [{text, logprob}]}.
 * A token that ends inside of a character has U+FFFD in its text, and the answer's text holds the character
 * only when it is complete; a text that may begin a stop string is held back too, and special tokens may
 * never show. So tokens and text arrive side by side, and this finds which part of the text is whose.
 */
class TokenAligner {
  #tokens = [];
  #text = "";
  #begun = false;

  /** Returns the pieces that are settled: {text, tokens}, in order; their texts join to the answer's text. */
  push(text, tokens) {
    this.#text += text;
    this.#tokens.push(...tokens);
    return this.#take(false);
  }

  /** What is left at the end. Tokens without text (the end token, a stop string's) are dropped. */
  finish() {
    const pieces = this.#take(true);
    if (this.#text !== "") pieces.push({ text: this.#text, tokens: this.#tokens });
    this.#text = "";
    this.#tokens = [];
    return pieces;
  }

  #take(last) {
    const pieces = [];
    while (this.#text !== "" && this.#tokens.length > 0) {
      const found = this.#next(last);
      if (found === null) break;
      const tokens = this.#tokens.splice(0, found.tokens);
      if (found.characters > 0) pieces.push({ text: this.#text.slice(0, found.characters), tokens });
      this.#text = this.#text.slice(found.characters);
      this.#begun = true;
    }
    return pieces;
  }

  // How many tokens make how many characters; null: only more text can tell.
  #next(last) {
    const first = this.#tokens[0].text;
    if (this.#text.startsWith(first)) return { tokens: 1, characters: first.length };
    if (first.startsWith(this.#text)) return last ? { tokens: 1, characters: this.#text.length } : null;
    // Some decoders drop the space that begins a text.
    const trimmed = first.trimStart();
    if (!this.#begun && trimmed !== "" && this.#text.startsWith(trimmed))
      return { tokens: 1, characters: trimmed.length };
    const ahead = Math.min(this.#tokens.length, 32);
    for (let i = 1; i < ahead; ++i) {
      const text = this.#tokens[i].text;
      if (text === "" || text.includes("\ufffd")) continue;
      const characters = this.#text.indexOf(text);
      if (characters >= 0) return { tokens: i, characters };
    }
    if (ahead === 32) return { tokens: 32, characters: this.#text.length };
    return null;
  }
}

/** `logprobs` of a completion's choice -> tokens. */
function tokensOfCompletion(logprobs) {
  return (logprobs?.tokens ?? []).map((text, i) => ({
    text,
    logprob: logprobs.token_logprobs?.[i] ?? null,
    tops: Object.entries(logprobs.top_logprobs?.[i] ?? {}).map(([top, logprob]) => ({ text: top, logprob })),
  }));
}

/** `logprobs` of a chat's choice -> tokens. */
function tokensOfChat(logprobs) {
  return (logprobs?.content ?? []).map(({ token, logprob, top_logprobs }) => ({
    text: token,
    logprob: logprob ?? null,
    tops: (top_logprobs ?? []).map((top) => ({ text: top.token, logprob: top.logprob })),
  }));
}

/** Null when it is not known. */
function probability(tokens) {
  if (tokens.length === 0 || tokens.some((token) => token.logprob === null)) return null;
  return Math.exp(tokens.reduce((sum, token) => sum + token.logprob, 0));
}

/** White space and control characters made visible. */
function visible(text) {
  return text.replaceAll(" ", "\u2423").replaceAll("\n", "\u21b5").replaceAll("\t", "\u21e5")
    .replace(/[\u0000-\u001f\u007f]/g, "\u2426");
}

/** The five most probable tokens in the place of `token`, and the token itself when it is none of them. */
function alternatives(token) {
  const tops = [...token.tops].sort((a, b) => b.logprob - a.logprob).slice(0, 5);
  const drawn = tops.findIndex((top) => top.text === token.text);
  const rows = tops.map((top, i) => ({ ...top, drawn: i === drawn }));
  if (drawn < 0 && token.logprob !== null) rows.push({ ...token, drawn: true });
  return rows;
}

const pieceOf = new WeakMap();  // span -> {text, tokens}

/** The one tooltip of tokens: by pointer and by focus. Stays while the pointer is on it; Escape hides it. */
const tip = {
  span: null,
  timer: 0,

  show(span) {
    clearTimeout(this.timer);
    if (this.span === span) return;
    this.hide();
    const piece = pieceOf.get(span);
    if (piece === undefined) return;
    this.span = span;
    const box = byId("tip");
    box.replaceChildren(...this.content(piece));
    box.hidden = false;
    span.setAttribute("aria-describedby", "tip");
    this.place();
  },

  /** Below the token's first line, or above it, inside of the window. */
  place() {
    if (this.span === null) return;
    const box = byId("tip");
    const at = this.span.getClientRects()[0] ?? this.span.getBoundingClientRect();
    const { width, height } = box.getBoundingClientRect();
    const below = at.bottom + 6 + height < window.innerHeight || at.top < height + 6;
    box.style.left = `${Math.max(4, Math.min(at.left, document.documentElement.clientWidth - width - 4))}px`;
    box.style.top = `${Math.max(4, below ? at.bottom + 6 : at.top - height - 6)}px`;
  },

  hideSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.hide(), 150);
  },

  hide() {
    clearTimeout(this.timer);
    this.span?.removeAttribute("aria-describedby");
    this.span = null;
    byId("tip").hidden = true;
  },

  content({ text, tokens }) {
    const share = probability(tokens);
    const head = element("p", {}, element("code", {}, visible(text)), " ");
    head.append(element("strong", {}, share === null ? "probability unknown" : percent(share)));
    if (tokens.length > 1) head.append(` (${tokens.length} tokens; below: the first)`);
    const rows = tokens.length > 0 ? alternatives(tokens[0]) : [];
    if (rows.length === 0) return [head];
    const body = element("tbody");
    for (const row of rows) {
      const bar = element("span", { class: "bar" });
      bar.style.width = `${100 * Math.exp(row.logprob)}%`;
      body.append(element("tr", row.drawn ? { class: "drawn" } : {},
        element("td", {}, visible(row.text)),
        element("td", { class: "bars", "aria-hidden": "true" }, bar),
        element("td", { class: "number" }, percent(Math.exp(row.logprob)) + (row.drawn ? " \u25c0" : ""))));
    }
    return [head, element("table", {}, body)];
  },

  listen() {
    const spanAt = (event) => event.target.closest?.(".tokens .t") ?? null;
    document.addEventListener("pointerover", (event) => {
      const span = spanAt(event);
      if (span) this.show(span);
      else if (event.target.closest?.("#tip")) clearTimeout(this.timer);
      else if (this.span && this.span !== document.activeElement) this.hideSoon();
    });
    document.addEventListener("focusin", (event) => {
      const span = spanAt(event);
      if (span) this.show(span);
      else this.hide();
    });
    document.addEventListener("scroll", () => this.place(), { passive: true, capture: true });
  },
};

/**
 * Shows an answer in `box`. With probabilities each token is an option of a list box, one tab stop in all:
 * arrows, Home and End move between tokens.
 */
class TokenView {
  #aligner = new TokenAligner();
  #waiting = [];
  #scheduled = false;

  /** `scroller` follows the text as long as its end is in sight. */
  constructor(box, probabilities, scroller = box) {
    Object.assign(this, { box, scroller });
    this.probabilities = probabilities;
    this.text = "";
    box.replaceChildren();
    box.setAttribute("aria-busy", "true");
    box.setAttribute("role", probabilities ? "listbox" : "group");
    box.tabIndex = 0;
  }

  push(text, tokens) {
    this.text += text;
    this.#waiting.push(...(this.probabilities ? this.#aligner.push(text, tokens) : [{ text, tokens: [] }]));
    if (this.#scheduled) return;
    this.#scheduled = true;
    const later = document.hidden ? (action) => setTimeout(action, 200) : requestAnimationFrame;
    later(() => {
      this.#scheduled = false;
      this.#flush();
    });
  }

  finish() {
    this.#waiting.push(...this.#aligner.finish());
    this.#flush();
    this.box.removeAttribute("aria-busy");
  }

  #flush() {
    const { box, scroller } = this;
    const atEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 24;
    const made = this.#waiting.map((piece) => (this.probabilities ? this.#span(piece) : piece.text));
    this.#waiting = [];
    if (made.length === 0) return;
    box.append(...made);
    if (atEnd) scroller.scrollTop = scroller.scrollHeight;
  }

  #span(piece) {
    const share = probability(piece.tokens);
    const span = element("span", { class: "t", role: "option", tabindex: "-1" });
    piece.text.split("\n").forEach((line, i) => {
      if (i > 0) span.append(element("span", { class: "nl" }), "\n");  // a sign that is not copied
      span.append(line);
    });
    if (share !== null) span.classList.add(`p${Math.min(9, Math.floor(10 * share))}`);
    span.setAttribute("aria-label", `${visible(piece.text)}, ${share === null ? "unknown" : percent(share)}`);
    pieceOf.set(span, piece);
    return span;
  }

  /** Arrow keys between tokens; true if the key was one of ours. */
  static key(event) {
    const box = event.target.closest?.(".tokens[role=listbox]");
    if (!box || event.ctrlKey || event.altKey || event.metaKey) return false;
    const now = event.target.closest(".t");
    const target = {
      ArrowRight: () => (now ? now.nextElementSibling : box.firstElementChild),
      ArrowDown: () => (now ? now.nextElementSibling : box.firstElementChild),
      ArrowLeft: () => (now ? now.previousElementSibling : box.lastElementChild),
      ArrowUp: () => (now ? now.previousElementSibling : box.lastElementChild),
      Home: () => box.firstElementChild,
      End: () => box.lastElementChild,
    }[event.key];
    if (target === undefined) return false;
    const span = target();
    if (span) {
      box.tabIndex = -1;  // the token is the tab stop now
      if (now) now.tabIndex = -1;
      span.tabIndex = 0;
      span.focus();
    }
    return true;
  }
}
