
const modelFacts = [
  ["name", "Name", String],
  ["architecture", "Architecture", String],
  ["attention", "Attention", String],
  ["parameters", "Parameters", (value) => `${whole.format(value)}`],
  ["layers", "Layers", String],
  ["heads", "Heads", String],
  ["kv_heads", "KV heads", String],
  ["head_dim", "Head dimension", String],
  ["hidden_size", "Hidden size", String],
  ["intermediate_size", "Intermediate size", String],
  ["vocabulary", "Vocabulary", (value) => whole.format(value)],
  ["max_length", "Context length", (value) => `${whole.format(value)} tokens`],
  ["dtype", "Type of numbers", String],
  ["device", "Device", String],
  ["kernels", "Kernels", String],
  ["threads", "Threads", String],
  ["kv_bytes_per_token", "KV cache of a token", bytes],
];

/** /model_info as a table and two charts. What the server does not tell is not shown. */
const modelCard = {
  missing: false,  // this server has none

  /** False: ask again later, the server may still load the model. */
  async load() {
    if (this.missing) return true;
    try {
      const info = await (await api.send("model_info")).json();
      if (info !== null && typeof info === "object") this.show(info);
    } catch (error) {
      this.missing = error.status === 404;
      return error instanceof ApiError && error.status !== 503 && error.status !== 0;
    }
    return true;
  },

  show(info) {
    const known = modelFacts.filter(([key]) => ["string", "number"].includes(typeof info[key]));
    byId("model-table").tBodies[0].replaceChildren(...known.map(([key, label, format]) =>
      element("tr", {}, element("th", { scope: "row" }, label), element("td", {}, format(info[key])))));
    this.heads(info.head_classes, info.heads);
    this.zeros(info.zero_shares);
    byId("model").hidden = known.length === 0;
    if (typeof info.name === "string") {
      byId("model-name").textContent = info.name;
      document.title = `${info.name} – AsyncT`;
    }
    if (info.max_length > 1) byId("max-tokens").parentElement.querySelector("[type=range]").max = info.max_length;
  },

  heads(classes, heads) {
    const part = byId("heads-part");
    part.hidden = !Array.isArray(classes) || classes.length === 0;
    if (part.hidden) return;
    const rows = classes.map((layer) => [layer?.skip_safe ?? 0, layer?.dead ?? 0, layer?.dense ?? 0]);
    const top = Math.max(1, heads ?? 0, ...rows.map((row) => row[0] + row[1] + row[2]));
    barChart(part, { title: "Classes of heads by layer", names: ["skip-safe", "dead", "dense"], rows, top,
      format: shortNumber });
  },

  zeros(shares) {
    const part = byId("zeros-part");
    const rows = Array.isArray(shares) ? shares.map((share) => [typeof share === "number" ? share : null]) : [];
    part.hidden = rows.every(([share]) => share === null);
    if (part.hidden) return;
    barChart(part, { title: "Zeros of the feed-forward by layer, since start", names: ["share"], rows, top: 1,
      format: percent });
  },
};
