#include <cstdio>
#include <exception>
#include <string>

#include "asynct/base/error.h"
#include "asynct/base/limits.h"
#include "asynct/base/log.h"
#include "asynct/cli/commands.h"
#include "asynct/cli/print_error.h"

namespace {

/// What CLI11 found wrong, as one line that names it. Exit status 1, like every other error of a user.
int report_usage(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
  std::string message = error.what();
  std::string command = "asynct";
  if (const auto parsed = app.get_subcommands(); !parsed.empty())
    command += " " + parsed.front()->get_name();
  else if (const auto unknown = app.remaining(); !unknown.empty())
    message = asynct::cat("unknown command or option \"", unknown.front(), "\"");
  asynct::print_error(asynct::cat(message, " (", command, " --help shows what there is)"));
  return 1;
}

/// Says what is left and what to do; with too little memory for that, only what happened.
void report_out_of_memory() noexcept {
  try {
    const asynct::MemoryBudget left = asynct::memory_budget();
    asynct::print_error(asynct::cat("out of memory: ", left.bytes >> 20, " MiB are left (", left.bound,
                                    "); raise the limit, or ask for less with --kv-memory and --threads"));
  } catch (...) {
    std::fputs("asynct: out of memory\n", stderr);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"AsyncT: evaluate and run transformers without softmax and without normalization", "asynct"};
  app.require_subcommand(1);
  app.set_version_flag("--version", ASYNCT_VERSION);
  asynct::add_eval(app);
  asynct::add_run(app);
  asynct::add_inspect(app);
  asynct::add_bench(app);
  asynct::add_serve(app);
  asynct::add_synth(app);
  try {
    app.parse(argc, argv);
    asynct::log(asynct::LogLevel::debug,
                asynct::cat("peak resident size: ", asynct::peak_resident_bytes() >> 10, " KiB"));
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return 0;
    asynct::print_error("standard output: cannot write");
  } catch (const CLI::RuntimeError& error) {  // a command's own exit status
    return error.get_exit_code();
  } catch (const CLI::ParseError& error) {
    return report_usage(app, error);
  } catch (const std::bad_alloc&) {
    report_out_of_memory();
  } catch (const std::exception& error) {
    asynct::print_error(error.what());
  }
  return 1;
}
