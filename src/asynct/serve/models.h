#pragma once

#include <string>
#include <string_view>

#include "asynct/serve/context.h"

namespace asynct::serve {

/// GET /v1/models.
std::string models_json(const Context& context);

/// GET /v1/models/{id}. `id` as it stands in the path: percent-encoded or not, its slashes too. RequestError
/// (404) for one that is not ours.
std::string model_json(const Context& context, std::string_view id);

/// RequestError (404) unless it is one of our names.
void check_model_name(const Context& context, const std::string& name);

}  // namespace asynct::serve
