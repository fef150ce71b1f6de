#pragma once

namespace CLI {
class App;
}

namespace asynct {

/// Adds the subcommand `eval`.
void add_eval(CLI::App& app);

}  // namespace asynct
