
/** 1, 2 or 5 times a power of ten, not below `value`. */
function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((bound) => bound >= value * (1 - 1e-9)) ?? 10 * power;
}

/** Up to two lines over the last two minutes. `format` writes values with their unit. */
class LineChart {
  static seconds = 120;
  #points = [];  // {time, values: number or null}

  constructor(parent, { title, names, format, least = 0, most = null }) {
    Object.assign(this, { title, names, format, least, most });
    this.svg = svg("svg", { viewBox: "0 0 320 132", role: "img" });
    this.values = names.map(() => element("b", {}, "–"));
    const keys = names.map((name, i) =>
      element("li", {},
        svg("svg", { viewBox: "0 0 22 8", "aria-hidden": "true" },
          svg("path", { d: "M1 4H21", class: `series s${i}` })),
        `${name} `, this.values[i]));
    parent.append(element("figure", {}, element("figcaption", {}, title),
      element("ul", { class: "keys-of-chart" }, ...keys), this.svg));
    this.draw(0);
  }

  add(time, values) {
    this.#points.push({ time, values });
    while (this.#points[0].time < time - LineChart.seconds) this.#points.shift();
    this.draw(time);
  }

  draw(now) {
    const known = this.#points.flatMap((point) => point.values).filter((value) => value !== null);
    const top = this.most ?? roundUp(Math.max(this.least, ...known));
    const left = 54, right = 314, bottom = 112, height = 102;
    const x = (time) => right - ((now - time) / LineChart.seconds) * (right - left);
    const y = (value) => bottom - (Math.min(value, top) / top) * height;
    const parts = [];
    for (const share of [0, 0.5, 1]) {
      const at = bottom - share * height;
      parts.push(svg("path", { d: `M${left} ${at}H${right}`, class: "axis" }),
        svg("text", { x: left - 5, y: at + 4, "text-anchor": "end" }, this.format(share * top)));
    }
    for (const [seconds, anchor] of [[120, "start"], [60, "middle"], [0, "end"]])
      parts.push(svg("text", { x: x(now - seconds), y: 127, "text-anchor": anchor },
        seconds > 0 ? `−${seconds} s` : "now"));
    this.names.forEach((name, i) => parts.push(...this.#line(i, x, y)));
    this.svg.replaceChildren(...parts);
    this.#say(known);
  }

  // A line breaks where a value is missing, and where the page did not ask (a hidden tab).
  #line(i, x, y) {
    let path = "";
    let before = null;
    for (const { time, values } of this.#points) {
      if (values[i] !== null) {
        const joined = before !== null && time - before < 4;
        path += `${joined ? "L" : "M"}${x(time).toFixed(1)} ${y(values[i]).toFixed(1)}`;
      }
      before = values[i] === null ? null : time;
    }
    const last = this.#points.at(-1);
    const parts = path === "" ? [] : [svg("path", { d: path, class: `series s${i}` })];
    if (last !== undefined && last.values[i] !== null) {
      const d = `M${x(last.time)} ${y(last.values[i]).toFixed(1)}h0`;
      parts.push(svg("path", { d, class: `series s${i} dot` }));
    }
    return parts;
  }

  #say(known) {
    const last = this.#points.at(-1)?.values ?? this.names.map(() => null);
    const texts = last.map((value) => (value === null ? "–" : this.format(value)));
    texts.forEach((text, i) => (this.values[i].textContent = text));
    const said = this.names.map((name, i) => `${name} ${last[i] === null ? "no value" : texts[i]}`).join(", ");
    const most = known.length > 0 ? `; most in two minutes: ${this.format(Math.max(...known))}` : "";
    this.svg.setAttribute("aria-label", `${this.title}: ${said}${most}`);
  }
}

/**
 * Stacked bars by layer, with the same numbers as a table below. `rows`: of each layer a number or null per
 * name; `top`: of the axis.
 */
function barChart(parent, { title, names, rows, top, format }) {
  const left = 54, right = 314, bottom = 112, height = 102;
  const step = (right - left) / rows.length;
  const parts = [];
  for (const share of [0, 0.5, 1]) {
    const at = bottom - share * height;
    parts.push(svg("path", { d: `M${left} ${at}H${right}`, class: "axis" }),
      svg("text", { x: left - 5, y: at + 4, "text-anchor": "end" }, format(share * top)));
  }
  const every = Math.ceil(rows.length / 12);
  rows.forEach((values, layer) => {
    let sum = 0;
    values.forEach((value, i) => {
      if (!(value > 0)) return;
      const from = Math.min(1, sum / top), to = Math.min(1, (sum + value) / top);
      sum += value;
      parts.push(svg("rect", { x: left + (layer + 0.12) * step, width: step * 0.76, y: bottom - to * height,
        height: (to - from) * height, class: `b${i}` }));
    });
    if (layer % every === 0)
      parts.push(svg("text", { x: left + (layer + 0.5) * step, y: 127, "text-anchor": "middle" }, String(layer)));
  });
  const cell = (value) => (value === null ? "–" : format(value));
  const keys = names.map((name, i) =>
    element("li", {}, svg("svg", { viewBox: "0 0 22 8", "aria-hidden": "true" },
      svg("rect", { x: 7, width: 8, height: 8, class: `b${i}` })), name));
  const table = element("table", { class: "facts" },
    element("thead", {}, element("tr", {}, ...["layer", ...names].map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, ...rows.map((values, layer) => element("tr", {},
      element("th", { scope: "row" }, String(layer)), ...values.map((value) => element("td", {}, cell(value)))))));
  const opened = parent.querySelector("details")?.open ?? false;
  const details = element("details", {}, element("summary", {}, "As a table"), table);
  details.open = opened;
  parent.replaceChildren(element("figure", {}, element("figcaption", {}, title),
    element("ul", { class: "keys-of-chart" }, ...(names.length > 1 ? keys : [])),
    svg("svg", { viewBox: "0 0 320 132", role: "img", "aria-label": `${title}; the numbers are in the table below` },
      ...parts)), details);
}
