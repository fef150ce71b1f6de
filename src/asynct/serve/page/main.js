
/** Dark or light: the system's choice until the button makes another. */
const theme = {
  start() {
    const system = matchMedia("(prefers-color-scheme: dark)");
    this.show(system.matches);
    system.addEventListener("change", () => this.show(system.matches));
    byId("theme").addEventListener("click", () => {
      const dark = byId("theme").getAttribute("aria-pressed") !== "true";
      document.documentElement.dataset.theme = dark ? "dark" : "light";
      this.show(dark);
    });
  },
  show(systemDark) {
    const chosen = document.documentElement.dataset.theme;
    byId("theme").setAttribute("aria-pressed", String(chosen === undefined ? systemDark : chosen === "dark"));
  },
};

/** Asks what there is to know of the model, until there is an answer: the server may still load it. */
async function loadModel() {
  for (let wait = 1; wait <= 32 && !(await modelCard.load()); wait *= 2)
    await new Promise((resolve) => setTimeout(resolve, 1000 * wait));
  playground.findChat();
}

theme.start();
tip.listen();
playground.start();
serverCharts.start();
loadModel();
byId("key").addEventListener("input", () => (api.key = byId("key").value.trim()));
byId("key").addEventListener("change", () => {
  serverCharts.restart();
  loadModel();
});
