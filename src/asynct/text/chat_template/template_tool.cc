// Renders chat templates, for the differential tests and for looking at one by hand:
//   asynct_template < records > records     each {"template", "variables", "now"?}: {"text"} or {"error",
//   "at"} asynct_template DIR|FILE < variables    the template of a checkpoint, JSON on standard input
// A record, in and out, is a 32-bit little-endian length and that many bytes of JSON. "now" is what
// strftime_now reads, in seconds since 1970; "at" is "load" or "render".

#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>

#include "asynct/base/error.h"
#include "asynct/text/chat_template/chat_template.h"
#include "asynct/text/record_io.h"

namespace {

using asynct::ChatTemplate;
using asynct::Json;

Json render(const Json& request) {
  asynct::ChatTemplateOptions options;
  if (request.contains("now")) options.clock = [now = request["now"].get<std::time_t>()] { return now; };
  std::optional<ChatTemplate> chat_template;
  try {
    chat_template.emplace(request.at("template").get_ref<const std::string&>(), "template", options);
    return {{"text", chat_template->render(request.at("variables"))}};
  } catch (const asynct::Error& error) {
    return {{"error", error.what()}, {"at", chat_template.has_value() ? "render" : "load"}};
  }
}

void render_records() {
  std::string record;
  while (asynct::read_record(record))
    asynct::write_record(asynct::dump_json(render(asynct::parse_json(record, "stdin", 256))));
}

void render_checkpoint(const char* path) {
  const std::string variables{std::istreambuf_iterator<char>(std::cin), {}};
  const std::string text = asynct::load_chat_template(path).render(asynct::parse_json(variables, "stdin"));
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2) {
    std::fputs("usage: asynct_template [DIR|FILE] < in > out\n", stderr);
    return 2;
  }
  try {
    argc == 2 ? render_checkpoint(argv[1]) : render_records();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "asynct_template: %s\n", error.what());
    return 1;
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}
