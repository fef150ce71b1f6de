#pragma once

#include <CLI/CLI.hpp>

namespace asynct {

/// Each registers its subcommand with `app`, one file a subcommand. Callbacks throw asynct::Error on bad
/// input and CLI::RuntimeError for an exit status of their own.
void add_eval(CLI::App& app);
void add_run(CLI::App& app);
void add_inspect(CLI::App& app);
void add_bench(CLI::App& app);
void add_serve(CLI::App& app);
void add_bench_kernels(CLI::App& bench);
void add_bench_serve(CLI::App& bench);
void add_synth(CLI::App& app);

}  // namespace asynct
