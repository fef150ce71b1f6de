#include "asynct/serve/load/server_info.h"

#include <algorithm>
#include <optional>

#include "asynct/base/error.h"
#include "asynct/base/json.h"
#include "asynct/serve/load/answer.h"

namespace asynct::load {
namespace {

constexpr auto kPatience = std::chrono::seconds(30);
constexpr std::size_t kMaxBody = std::size_t{16} << 20;

class WholeResponse : public ResponseSink {
 public:
  void on_body(const ResponseParser&, std::string_view bytes, Clock::time_point) override {
    body += bytes.substr(0, kMaxBody - body.size());
  }
  void on_end(int code, Failure why, std::string_view text, Clock::time_point) override {
    ended = true;
    status = code;
    failure = why;
    detail = text;
  }

  bool ended = false;
  int status = 0;
  Failure failure = Failure::none;
  std::string detail, body;
};

struct Reply {
  int status = 0;
  Json json;  // an object if the status is 200
  std::string body;
};

Reply get(boost::asio::io_context& context, Client& client, std::string_view path) {
  const auto response = std::make_shared<WholeResponse>();
  const auto connection = client.send(client.format(path, ""), response);
  context.restart();
  context.run_for(kPatience);
  if (!response->ended) {
    connection->close();
    fail("GET ", path, ": no response in ", kPatience.count(), " s");
  }
  if (response->failure != Failure::none)
    fail("GET ", path, ": ", name(response->failure), ": ", response->detail);
  Reply reply{response->status, {}, std::move(response->body)};
  if (reply.status != 200) return reply;
  reply.json = parse_json(reply.body, cat("GET ", path));
  if (!reply.json.is_object()) fail("GET ", path, ": expected a JSON object");
  return reply;
}

std::int64_t size_field(const Json& object, const char* key) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_number_integer()) return 0;
  return std::clamp<std::int64_t>(object[key].get<std::int64_t>(), 0, INT32_MAX);
}

Json first_model(const Reply& reply) {
  if (reply.status != 200 || !reply.json.contains("data")) return {};
  const Json& data = reply.json["data"];
  return data.is_array() && !data.empty() && data[0].is_object() ? data[0] : Json();
}

}  // namespace

void ask_server(LoadOptions& options, boost::asio::io_context& context, Client& client) {
  const bool ids =
      options.prompts_file.empty() && options.endpoint == Endpoint::completions && options.vocabulary == 0;
  if (!options.model.empty() && !ids) return;
  const Reply models = get(context, client, "/v1/models");
  const Json model = first_model(models);
  if (options.model.empty()) {
    if (models.status != 200)
      fail("GET /v1/models: HTTP status ", models.status, ": ", error_message(models.body));
    if (!model.is_object() || !model.contains("id") || !model["id"].is_string())
      fail("GET /v1/models names no model: give --model");
    options.model = model["id"].get<std::string>();
  }
  if (!ids) return;
  options.vocabulary = size_field(get(context, client, "/tokenizer_info").json, "vocab_size");
  if (options.vocabulary == 0 && model.is_object() && model.contains("meta"))
    options.vocabulary = size_field(model["meta"], "n_vocab");
}

}  // namespace asynct::load
