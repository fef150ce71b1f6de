#include "asynct/serve/api_server.h"

#include <atomic>
#include <ctime>
#include <filesystem>
#include <functional>
#include <optional>
#include <utility>

#include "asynct/base/error.h"
#include "asynct/base/json.h"
#include "asynct/base/log.h"
#include "asynct/base/mapped_file.h"
#include "asynct/serve/chat.h"
#include "asynct/serve/completions.h"
#include "asynct/serve/context.h"
#include "asynct/serve/http/error_json.h"
#include "asynct/serve/model_info.h"
#include "asynct/serve/models.h"
#include "asynct/serve/openapi.h"
#include "asynct/serve/page/page.h"
#include "asynct/serve/publisher.h"
#include "asynct/serve/request_fields.h"
#include "asynct/serve/score.h"
#include "asynct/serve/tokenizer_routes.h"
#include "asynct/text/chat_template/chat_template.h"
#include "asynct/text/grammar/grammar.h"

namespace asynct::serve {
namespace {

using http::HttpRequest;
using http::Responder;
using ResponderPtr = std::shared_ptr<Responder>;

constexpr std::string_view kJson = "application/json";

std::vector<std::string> names_of(const ApiOptions& options) {
  if (!options.served_names.empty()) return options.served_names;
  std::vector<std::string> names{options.model};
  std::string last = std::filesystem::path(options.model).lexically_normal().filename().string();
  if (last.empty()) last = std::filesystem::path(options.model).parent_path().filename().string();
  if (last != options.model && !last.empty()) names.push_back(last);
  return names;
}

/// A model and all that works on it, in the order in which it must go away.
struct Loaded {
  explicit Loaded(const ApiOptions& options);

  Tokenizer tokenizer;
  OpenedModel model;
  std::string template_source;
  std::optional<ChatTemplate> chat_template;
  Json info;
  Metrics metrics;
  Publisher publisher;
  GrammarCompiler grammars;
  EngineThread engine;
  Context context;
};

EngineThread::Options engine_options(const ApiOptions& options, const OpenedModel& model) {
  EngineThread::Options engine{.engine = model.engine, .max_queue = options.max_queue};
  engine.engine.prefix_cache = options.prefix_cache;
  engine.engine.prefill_chunk = options.prefill_chunk;
  return engine;
}

Loaded::Loaded(const ApiOptions& options)
    : tokenizer(Tokenizer::load(options.model)),
      model(open_runner(options.model, options.engine)),
      grammars(tokenizer, model.runner->vocabulary()),
      engine(*model.runner, engine_options(options, model), [this] { publisher.flush(); }),
      context{.tokenizer = tokenizer,
              .engine = engine,
              .publisher = publisher,
              .metrics = metrics,
              .model_names = names_of(options),
              .end_tokens = end_tokens_of(model, tokenizer),
              .vocabulary = model.runner->vocabulary(),
              .max_length = model.runner->max_length(),
              .created = std::time(nullptr),
              .grammars = &grammars,
              .limits = options.limits} {
  check_vocabulary(options.model, model, tokenizer);
  context.no_template =
      "messages: this model has no chat template; use /v1/completions, or give the server a "
      "template by --chat-template FILE";
  if (!options.chat_template.empty()) {
    template_source = read_file(options.chat_template, std::size_t{1} << 20);
    chat_template.emplace(template_source, options.chat_template);
  } else if (auto source = find_chat_template(options.model)) {
    chat_template.emplace(source->text, source->name);
    template_source = std::move(source->text);
  }
  if (chat_template) context.chat_template = &*chat_template;
  info = model_info(context.model_names.front(), options.engine, model);
}

std::string info_json(const Loaded& loaded) {
  Json info = loaded.info;
  const auto layers = loaded.model.runner->neuron_counts();
  info["zero_shares"] = layers.empty() ? Json() : Json::array();
  for (const FeedForward::Counts& layer : layers)
    info["zero_shares"].push_back(
        layer.neurons > 0 ? Json(1 - static_cast<double>(layer.active) / static_cast<double>(layer.neurons))
                          : Json());
  return dump_json(info);
}

}  // namespace

class ApiServer::Impl {
 public:
  explicit Impl(ApiOptions options) : options_(std::move(options)) {
    http::ServerOptions http = options_.http;
    http.public_paths = {"/", "/health", "/ping"};
    http.allowed_hosts = http::hosts_to_answer(http.host, std::move(http.allowed_hosts));
    server_.emplace(std::move(http), routes());
  }

  void load() {
    loaded_ = std::make_unique<Loaded>(options_);
    ready_.store(loaded_.get());
  }

  std::string address() const { return server_->address(); }

  void stop(http::Milliseconds grace) {
    server_->stop(grace);  // while the engine works on what the server waits for
    if (loaded_ != nullptr) loaded_->engine.shut_down(http::Milliseconds(0));
  }

 private:
  using Action = std::function<void(Loaded&, const HttpRequest&, ResponderPtr)>;
  using Answer = std::function<std::string(Loaded&, const HttpRequest&)>;

  /// Turns what is wrong with a request into its answer.
  static void guarded(const Action& action, Loaded& loaded, const HttpRequest& request,
                      const ResponderPtr& responder) {
    try {
      action(loaded, request, responder);
    } catch (const RequestError& error) {
      http::Headers headers;
      if (error.status == 429) headers.emplace_back("retry-after", "1");
      http::send_error(
          *responder,
          {.status = error.status, .message = error.what(), .param = error.param, .code = error.code},
          headers);
    } catch (const Error& error) {
      http::send_error(*responder, {.status = 500, .message = error.what()});
    }
  }

  void add(http::Router& router, std::string_view method, std::string_view path, Action action) {
    router.add(
        method, path, [this, action = std::move(action)](const HttpRequest& request, ResponderPtr responder) {
          Loaded* const loaded = ready_.load();
          if (loaded == nullptr) {
            http::send_error(*responder,
                             {.status = 503, .message = "the model is being loaded", .code = "loading"},
                             {{"retry-after", "1"}});
            return;
          }
          guarded(action, *loaded, request, responder);
        });
  }

  void answer(http::Router& router, std::string_view method, std::string_view path, Answer make,
              std::string_view type = kJson) {
    add(router, method, path,
        [make = std::move(make), type](Loaded& loaded, const HttpRequest& request,
                                       const ResponderPtr& responder) {
          responder->send(200, type, make(loaded, request));
        });
  }

  http::Router routes() {
    http::Router router;
    for (const char* const path : {"/health", "/ping"})
      answer(router, "GET", path,
             [](Loaded&, const HttpRequest&) { return std::string("{\"status\":\"ok\"}"); });
    router.add("GET", "/version", [](const HttpRequest&, const ResponderPtr& responder) {
      responder->send(200, kJson, cat("{\"version\":\"", ASYNCT_VERSION, "\"}"));
    });
    router.add("GET", "/openapi.json", [](const HttpRequest&, const ResponderPtr& responder) {
      responder->send(200, kJson, openapi_json());
    });
    router.add("GET", "/", [](const HttpRequest&, const ResponderPtr& responder) {
      responder->send(200, "text/html; charset=utf-8", page_html(),
                      {{"content-security-policy", std::string(page_csp())},
                       {"x-content-type-options", "nosniff"},
                       {"cache-control", "no-cache"}});
    });
    answer(router, "GET", "/v1/models", [](Loaded& l, const HttpRequest&) { return models_json(l.context); });
    constexpr std::string_view kModels = "/v1/models/";
    answer(router, "GET", cat(kModels, "*"), [kModels](Loaded& l, const HttpRequest& request) {
      return model_json(l.context, std::string_view(request.path).substr(kModels.size()));
    });
    answer(router, "GET", "/model_info", [](Loaded& l, const HttpRequest&) { return info_json(l); });
    answer(
        router, "GET", "/metrics",
        [](Loaded& l, const HttpRequest&) {
          return prometheus_text(l.metrics, l.engine.status(), l.model.runner->neuron_counts(),
                                 l.context.model_names.front());
        },
        "text/plain; version=0.0.4; charset=utf-8");
    answer(router, "GET", "/tokenizer_info",
           [](Loaded& l, const HttpRequest&) { return tokenizer_info(l.context, l.template_source); });
    answer(router, "POST", "/tokenize",
           [](Loaded& l, const HttpRequest& r) { return tokenize(l.context, r); });
    answer(router, "POST", "/detokenize",
           [](Loaded& l, const HttpRequest& r) { return detokenize(l.context, r); });
    answer(router, "POST", "/apply-template",
           [](Loaded& l, const HttpRequest& r) { return apply_template(l.context, r); });
    answer(router, "POST", "/reset_prefix_cache", [](Loaded& l, const HttpRequest&) -> std::string {
      if (!l.engine.reset_prefix_cache()) throw RequestError("requests are running", "", 409);
      return "{}";
    });
    add(router, "POST", "/v1/completions", [](Loaded& l, const HttpRequest& request, ResponderPtr responder) {
      handle_completions(l.context, request, std::move(responder));
    });
    add(router, "POST", "/v1/chat/completions",
        [](Loaded& l, const HttpRequest& request, ResponderPtr responder) {
          handle_chat(l.context, request, std::move(responder));
        });
    add(router, "POST", "/v1/score", [](Loaded& l, const HttpRequest& request, ResponderPtr responder) {
      handle_score(l.context, request, std::move(responder));
    });
    return router;
  }

  const ApiOptions options_;
  std::unique_ptr<Loaded> loaded_;
  std::atomic<Loaded*> ready_{nullptr};
  std::optional<http::Server> server_;  // goes first: its handlers use the rest
};

ApiServer::ApiServer(ApiOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
ApiServer::~ApiServer() { stop(http::Milliseconds(0)); }
void ApiServer::load() { impl_->load(); }
std::string ApiServer::address() const { return impl_->address(); }
void ApiServer::stop(http::Milliseconds grace) { impl_->stop(grace); }

}  // namespace asynct::serve
