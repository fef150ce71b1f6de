
/** The charts from /metrics, asked for each second while the tab can be seen. */
const serverCharts = {
  history: new MetricHistory(),
  charts: [],
  timer: 0,
  asking: null,  // AbortController of the request on its way
  paused: false,
  failures: 0,

  start() {
    const parent = byId("charts");
    const count = (value) => shortNumber(value);
    const all = [
      [{ title: "Tokens per second", names: ["generated", "prompt"], format: count, least: 10 },
        (h) => [h.rate("vllm:generation_tokens_total"), h.rate("vllm:prompt_tokens_total")]],
      [{ title: "Requests", names: ["running", "waiting"], format: count, least: 2 },
        (h) => [h.gauge("vllm:num_requests_running"), h.gauge("vllm:num_requests_waiting")]],
      [{ title: "KV cache in use", names: ["share"], format: percent, most: 1 },
        (h) => [h.gauge("vllm:kv_cache_usage_perc")]],
      [{ title: "Prompt tokens found in the prefix cache", names: ["last minute", "since start"], format: percent,
        most: 1 }, hitShares],
      [{ title: "Time to first token, last minute", names: ["p50", "p99"], format: shortTime, least: 0.001 },
        (h) => [0.5, 0.99].map((q) => h.quantile("vllm:time_to_first_token_seconds", q))],
      [{ title: "Time between tokens, last minute", names: ["p50", "p99"], format: shortTime, least: 0.001 },
        (h) => [0.5, 0.99].map((q) => h.quantile("vllm:inter_token_latency_seconds", q))],
    ];
    this.charts = all.map(([options, values]) => ({ chart: new LineChart(parent, options), values }));
    document.addEventListener("visibilitychange", () => this.restart());
    byId("pause").addEventListener("click", () => {
      this.paused = !this.paused;
      byId("pause").setAttribute("aria-pressed", String(this.paused));
      this.restart();
    });
    this.restart();
  },

  /** Asks now, and each second from now on, if there is somebody to look. */
  restart() {
    clearTimeout(this.timer);
    this.asking?.abort();
    this.failures = 0;
    if (document.hidden || this.paused) this.say(this.paused ? "paused" : "");
    else this.ask();
  },

  say(text) {
    byId("server-state").textContent = text;
  },

  async ask() {
    const asking = new AbortController();
    this.asking = asking;
    const timeout = setTimeout(() => asking.abort(), 10_000);
    const begin = performance.now();
    let wait = 1000;
    try {
      const response = await api.send("metrics", { signal: asking.signal });
      const text = await response.text();
      if (this.asking !== asking) return;
      this.show(parsePrometheus(text));
      this.failures = 0;
    } catch (error) {
      if (this.asking !== asking) return;  // restarted
      if (error.status === 404) {
        byId("server").hidden = true;
        return;
      }
      if (error.status === 401) {
        this.say("The server wants an API key.");
        return;  // a key restarts it
      }
      wait = Math.min(30_000, 1000 * 2 ** ++this.failures);
      this.say(`${error instanceof ApiError ? error.message : "No answer in time."} Trying again.`);
    } finally {
      clearTimeout(timeout);
    }
    this.timer = setTimeout(() => this.ask(), Math.max(50, wait - (performance.now() - begin)));
  },

  show(metrics) {
    const time = performance.now() / 1000;
    this.history.add(time, metrics);
    for (const { chart, values } of this.charts) chart.add(time, values(this.history));
    this.say("live");
  },
};

function hitShares(history) {
  const names = ["vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"];
  const [hits, queries] = names.map((name) => history.gain(name, 60)?.by ?? null);
  const [allHits, allQueries] = names.map((name) => history.gauge(name));
  return [hits !== null && queries > 0 ? hits / queries : null,
    allHits !== null && allQueries > 0 ? allHits / allQueries : null];
}
