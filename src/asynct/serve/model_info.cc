#include "asynct/serve/model_info.h"

#include <algorithm>

#include "asynct/base/cpu_features.h"

namespace asynct::serve {

Json model_info(const std::string& name, const ModelOptions& options, const OpenedModel& opened) {
  const ModelReport& report = opened.report;
  const ModelConfig& config = report.config;
  const bool bf16 = options.precision == Precision::bf16;
  Json info = {{"name", name},
               {"architecture", config.model_type},
               {"attention", asynct::name(config.attention_form)},
               {"parameters", report.parameters},
               {"layers", config.layers},
               {"heads", config.heads},
               {"kv_heads", config.kv_heads},
               {"head_dim", config.head_dim},
               {"hidden_size", config.hidden_size},
               {"intermediate_size", config.intermediate_size},
               {"vocabulary", config.vocab_size},
               {"max_length", config.max_positions},
               {"dtype", bf16 ? "bf16" : "fp32"},
               {"device", options.device},
               {"kernels", asynct::name(opened.isa)},
               {"threads", opened.threads},
               {"kv_bytes_per_token", bf16 ? report.kv_bytes_bf16 : report.kv_bytes_fp32},
               {"head_classes", Json()}};
  if (report.heads.empty()) return info;
  info["head_classes"] = Json::array();
  for (std::size_t layer = 0; layer < report.heads.size(); ++layer) {
    const std::string& classes = report.heads[layer].classes;
    const auto count = [&](char letter) { return std::count(classes.begin(), classes.end(), letter); };
    info["head_classes"].push_back(
        {{"layer", layer}, {"skip_safe", count('s')}, {"dead", count('d')}, {"dense", count('D')}});
  }
  return info;
}

}  // namespace asynct::serve
