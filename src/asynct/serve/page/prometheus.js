
/**
 * Prometheus text -> a map from name to {value, buckets}: values summed over labels; of a histogram's
 * `name_bucket` also buckets: a map from the bound `le` to the count up to it.
 */
function parsePrometheus(text) {
  const metrics = new Map();
  for (const line of text.split("\n")) {
    const found = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/.exec(line);
    if (found === null) continue;
    const [, name, labels, number] = found;
    const value = number === "+Inf" ? Infinity : Number(number);
    if (Number.isNaN(value)) continue;
    if (!metrics.has(name)) metrics.set(name, { value: 0, buckets: new Map() });
    const metric = metrics.get(name);
    metric.value += value;
    const bound = /(?:^|,)le="([^"]*)"/.exec(labels ?? "");
    if (bound === null) continue;
    const le = bound[1] === "+Inf" ? Infinity : Number(bound[1]);
    metric.buckets.set(le, (metric.buckets.get(le) ?? 0) + value);
  }
  return metrics;
}

/**
 * The q-quantile of what was added between two states of a histogram's buckets, linear inside of a bucket;
 * above the last finite bound that bound. Null when nothing was added.
 */
function quantile(q, before, after) {
  const bounds = [...after.keys()].sort((a, b) => a - b);
  const added = bounds.map((bound) => after.get(bound) - (before.get(bound) ?? 0));
  const total = added.at(-1) ?? 0;
  if (!(total > 0)) return null;
  const rank = q * total;
  const at = added.findIndex((count) => count >= rank);
  const below = at > 0 ? added[at - 1] : 0;
  const from = at > 0 ? bounds[at - 1] : 0;
  if (bounds[at] === Infinity) return from;
  const inside = added[at] - below;
  return inside > 0 ? from + (bounds[at] - from) * ((rank - below) / inside) : bounds[at];
}

/** States of /metrics of the last two minutes. */
class MetricHistory {
  #states = [];  // {time in seconds, metrics}

  add(time, metrics) {
    this.#states.push({ time, metrics });
    while (this.#states[0].time < time - 125) this.#states.shift();
  }

  get last() {
    return this.#states.at(-1);
  }

  /** The newest state at least `seconds` old, or the oldest; null when there is but one. A counter that went
   *  back (a restart) hides what was before it. */
  before(seconds, counter) {
    let found = null;
    const { time } = this.last;
    for (let i = this.#states.length - 2; i >= 0; --i) {
      const newer = this.#states[i + 1].metrics.get(counter)?.value ?? 0;
      if ((this.#states[i].metrics.get(counter)?.value ?? 0) > newer) break;
      found = this.#states[i];
      if (found.time <= time - seconds) break;
    }
    return found;
  }

  gauge(name) {
    return this.last.metrics.get(name)?.value ?? null;
  }

  /** What a counter gained in the last `seconds` or so, and in how many seconds. */
  gain(name, seconds) {
    const now = this.last.metrics.get(name);
    const before = this.before(seconds, name);
    if (now === undefined || before === null) return null;
    return { by: now.value - (before.metrics.get(name)?.value ?? 0), seconds: this.last.time - before.time };
  }

  rate(name) {
    const gain = this.gain(name, 0.9);
    return gain === null ? null : gain.by / gain.seconds;
  }

  quantile(name, q) {
    const now = this.last.metrics.get(`${name}_bucket`);
    const before = this.before(60, `${name}_count`);
    if (now === undefined || before === null) return null;
    return quantile(q, before.metrics.get(`${name}_bucket`)?.buckets ?? new Map(), now.buckets);
  }
}
