
const byId = (id) => document.getElementById(id);

/** An element with attributes and children. Text becomes text nodes: nothing is ever parsed as markup. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** Three significant digits: 0.0123, 4.56, 78.9, 1,234, 12.3 k. */
function shortNumber(value) {
  const units = [[1e9, " G"], [1e6, " M"], [1e4, " k"]];
  for (const [size, name] of units)
    if (Math.abs(value) >= size) return `${shortNumber(value / (name === " k" ? 1e3 : size))}${name}`;
  if (Math.abs(value) >= 100) return whole.format(value);
  return String(Number(value.toPrecision(3)));
}

function shortTime(seconds) {
  if (seconds === 0) return "0 s";
  if (seconds < 1e-3) return `${shortNumber(seconds * 1e6)} µs`;
  if (seconds < 1) return `${shortNumber(seconds * 1e3)} ms`;
  return `${shortNumber(seconds)} s`;
}

function percent(share) {
  const value = 100 * share;
  if (value > 0 && value < 0.01) return "<0.01 %";
  return `${value >= 10 || value === 0 ? value.toFixed(1) : value.toPrecision(2)} %`.replace(/\.0 /, " ");
}

function bytes(count) {
  const units = ["bytes", "KiB", "MiB", "GiB"];
  let unit = 0;
  for (; count >= 1024 && unit < units.length - 1; ++unit) count /= 1024;
  return `${shortNumber(count)} ${units[unit]}`;
}
