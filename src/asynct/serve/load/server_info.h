#pragma once

#include "asynct/serve/load/client.h"
#include "asynct/serve/load/options.h"

namespace asynct::load {

/// Fills in what the options leave open and prompts need: the model from GET /v1/models, the vocabulary from
/// GET /tokenizer_info or llama-server's list of models (it stays 0 if neither tells). Errors: no server, no
/// model.
void ask_server(LoadOptions& options, boost::asio::io_context& context, Client& client);

}  // namespace asynct::load
