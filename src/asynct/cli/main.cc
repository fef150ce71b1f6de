#include <cstdio>
#include <exception>

#include "asynct/base/error.h"
#include "asynct/cli/commands.h"

int main(int argc, char** argv) {
  CLI::App app{"AsyncT: evaluate and run transformers without softmax and without normalization", "asynct"};
  app.require_subcommand(1);
  app.set_version_flag("--version", ASYNCT_VERSION);
  asynct::add_eval(app);
  asynct::add_run(app);
  asynct::add_inspect(app);
  asynct::add_bench(app);
  asynct::add_synth(app);
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& error) {  // also --help, --version and CLI::RuntimeError
    return app.exit(error);
  } catch (const std::bad_alloc&) {
    std::fputs("asynct: error: out of memory\n", stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "asynct: error: %s\n", error.what());
  }
  return 1;
}
