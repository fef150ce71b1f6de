#pragma once

#include <memory>
#include <string>
#include <vector>

#include "asynct/engine/engine_factory.h"
#include "asynct/serve/http/server.h"
#include "asynct/serve/limits.h"

namespace asynct::serve {

struct ApiOptions {
  std::string model;  // checkpoint directory
  std::vector<std::string>
      served_names;           // what requests may call it; empty: the directory as given, its last part
  std::string chat_template;  // a file that replaces the checkpoint's own
  ModelOptions engine;
  std::int64_t max_queue = 1024;
  std::int64_t prefill_chunk = 0;  // rows of one prompt a step at most; 0: no limit of its own
  bool prefix_cache = true;
  RequestLimits limits;
  http::ServerOptions http;  // allowed_hosts: beside those that it is called by anyway
};

/// A model behind the OpenAI protocol. docs/serving.md lists the routes.
class ApiServer {
 public:
  /// Listens when it returns, and answers 503 until load() has returned. Errors: the address.
  explicit ApiServer(ApiOptions options);
  ~ApiServer();  // stop(0)

  /// Loads the model. Errors: the loaders', a chat template that cannot be run.
  void load();

  std::string address() const;

  /// Takes no new requests, lets running ones end until the deadline, cancels the rest.
  void stop(http::Milliseconds grace);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace asynct::serve
