#pragma once

#include <string>

#include "asynct/base/json.h"
#include "asynct/engine/engine_factory.h"

namespace asynct::serve {

/// What a model is, for the page: sizes, head classes by layer.
Json model_info(const std::string& name, const ModelOptions& options, const OpenedModel& opened);

}  // namespace asynct::serve
