#pragma once

#include <string_view>

namespace asynct {

/// Error for a text that is no JSON schema, and for a schema with keywords that the grammar engine would pass
/// over, so that a text could fit the grammar and not the schema.
void check_schema(std::string_view schema);

}  // namespace asynct
