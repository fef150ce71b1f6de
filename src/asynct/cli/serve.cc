// asynct serve: a model behind the OpenAI protocol.

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "asynct/base/error.h"
#include "asynct/base/interrupt.h"
#include "asynct/cli/commands.h"
#include "asynct/cli/memory_option.h"
#include "asynct/serve/api_server.h"

namespace asynct {
namespace {

struct ServeArguments {
  serve::ApiOptions api;
  std::string dtype = "fp32";
  std::vector<std::string> api_keys;
  double drain_seconds = 30;
  bool no_prefix_cache = false;
  bool no_access_log = false;
};

void serve_model(ServeArguments arguments) {
  serve::ApiOptions& api = arguments.api;
  api.engine.precision = arguments.dtype == "bf16" ? Precision::bf16 : Precision::fp32;
  api.prefix_cache = !arguments.no_prefix_cache;
  api.http.api_keys = arguments.api_keys;
  if (!arguments.no_access_log) api.http.access_log = http::log_lines_to(stderr);
  const InterruptGuard guard;
  serve::ApiServer server(api);
  std::fprintf(stderr, "loading %s; http://%s answers 503 until it is ready\n", api.model.c_str(),
               server.address().c_str());
  server.load();
  // For scripts: one line on standard output when requests are taken.
  std::printf("ready: http://%s\n", server.address().c_str());
  std::fflush(stdout);
  while (!InterruptGuard::requested()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::fprintf(stderr, "stopping: running requests have %.0f seconds; interrupt again to end at once\n",
               arguments.drain_seconds);
  server.stop(std::chrono::milliseconds(static_cast<std::int64_t>(arguments.drain_seconds * 1000)));
}

}  // namespace

void add_serve(CLI::App& app) {
  auto arguments = std::make_shared<ServeArguments>();
  serve::ApiOptions& api = arguments->api;
  CLI::App& command = *app.add_subcommand("serve", "answer requests over the OpenAI protocol");
  command.add_option("MODEL", api.model, "checkpoint directory")->required()->check(CLI::ExistingDirectory);
  command.add_option("--host", api.http.host, "address to listen on")->capture_default_str();
  command.add_option("--port", api.http.port, "port; 0 takes a free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  command.add_option("--served-model-name", api.served_names,
                     "what requests call the model (default: MODEL and its last part)");
  command.add_option("--api-key", arguments->api_keys, "accepted keys (default: no key is asked for)");
  command.add_option(
      "--allowed-host", api.http.allowed_hosts,
      "names that requests may call it by in Host, or *; on a loopback address localhost, 127.0.0.1 "
      "and [::1] are (default: those, elsewhere any)");
  command.add_option("--allowed-origin", api.http.allowed_origins,
                     "CORS: origins of pages that may call, or * (default: none)");
  command.add_option("--chat-template", api.chat_template,
                     "file with a Jinja template (default: the checkpoint's)");
  command.add_option("--dtype", arguments->dtype, "fp32 or bf16")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  command.add_option("--threads", api.engine.threads, "of the model (default: all cores)");
  add_kv_memory(command, api.engine.kv_bytes);
  command
      .add_option("--max-batch-tokens", api.engine.batch_tokens, "rows a step, prompts and answers together")
      ->capture_default_str();
  command.add_option("--max-sequences", api.engine.max_sequences, "answers at once")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command.add_option("--prefill-chunk", api.prefill_chunk, "rows of one prompt a step at most; 0: no limit")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_option("--max-queue", api.max_queue, "waiting requests before 429")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_flag("--no-prefix-cache", arguments->no_prefix_cache, "forget a request's blocks when it ends");
  command.add_option("--io-threads", api.http.threads, "of the HTTP server")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command.add_option("--max-connections", api.http.max_connections, "open at once")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command
      .add_option("--max-connections-per-address", api.http.max_connections_per_address,
                  "open at once from one IP address; 0: no limit")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command.add_option("--drain-seconds", arguments->drain_seconds, "for running requests when stopped")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  command.add_flag("--no-access-log", arguments->no_access_log, "no line a request on standard error");
  command.callback([arguments] { serve_model(*arguments); });
}

}  // namespace asynct
