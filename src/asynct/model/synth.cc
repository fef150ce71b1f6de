#include "asynct/model/synth.h"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "asynct/base/error.h"
#include "asynct/base/interrupt.h"
#include "asynct/base/json.h"
#include "asynct/model/safetensors_writer.h"
#include "asynct/model/synth_tensors.h"

namespace asynct {
namespace {

namespace fs = std::filesystem;

SynthShape smollm2_shape() {
  return {.layers = 30,
          .hidden = 576,
          .heads = 9,
          .kv_heads = 3,
          .head_dim = 64,
          .intermediate = 1536,
          .vocab = 49152,
          .positions = 8192,
          .rope_theta = 100000,
          .tied = true};
}

SynthShape source_shape() {
  return {.layers = 35,
          .hidden = 1024,
          .heads = 8,
          .kv_heads = 4,
          .head_dim = 128,
          .intermediate = 3072,
          .vocab = 151936,
          .positions = 32768,
          .rope_theta = 1000000,
          .tied = true};
}

double parse_number(std::string_view key, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    fail("--shape: ", key, " is \"", text, "\", expected a number that is finite");
  return value;
}

void set_shape_value(SynthShape& shape, std::string_view key, std::string_view text) {
  const double value = parse_number(key, text);
  if (key == "rope_theta") {
    shape.rope_theta = value;
    return;
  }
  if (value != std::floor(value) || value < 0 || value > 1 << 30)
    fail("--shape: ", key, " is \"", text, "\", expected a whole number below 2^30");
  const auto whole = static_cast<std::int32_t>(value);
  struct Field {
    std::string_view name;
    std::int32_t SynthShape::*member;
  };
  constexpr Field kFields[] = {
      {"layers", &SynthShape::layers},     {"hidden", &SynthShape::hidden},
      {"heads", &SynthShape::heads},       {"kv_heads", &SynthShape::kv_heads},
      {"head_dim", &SynthShape::head_dim}, {"intermediate", &SynthShape::intermediate},
      {"vocab", &SynthShape::vocab},       {"positions", &SynthShape::positions}};
  for (const Field& field : kFields) {
    if (key != field.name) continue;
    shape.*field.member = whole;
    return;
  }
  if (key != "tied")
    fail("--shape: unknown key \"", key,
         "\", expected layers, hidden, heads, kv_heads, head_dim, intermediate, vocab, positions, tied or "
         "rope_theta");
  shape.tied = whole != 0;
}

Json config_json(const SynthOptions& options, const SynthShape& shape) {
  const bool softmax = options.attention == AttentionForm::softmax;
  std::string origin = cat("asynct synth --shape ", options.shape, " --seed ", options.seed);
  if (options.gate_zeros) origin += cat(" --gate-zeros ", *options.gate_zeros);
  return {{"_name_or_path", origin},
          {"model_type", "asynct"},
          {"architectures", {"AsyncTForCausalLM"}},
          {"vocab_size", shape.vocab},
          {"hidden_size", shape.hidden},
          {"intermediate_size", shape.intermediate},
          {"num_hidden_layers", shape.layers},
          {"num_attention_heads", shape.heads},
          {"num_key_value_heads", shape.kv_heads},
          {"head_dim", shape.head_dim},
          {"max_position_embeddings", shape.positions},
          {"rope_theta", shape.rope_theta},
          {"tie_word_embeddings", shape.tied},
          {"hidden_act", "relu"},
          {"embedding_multiplier", 50.0},
          {"attention_kind", name(options.attention)},
          {"attention_scale", softmax ? 1 / std::sqrt(shape.head_dim) : 1.0 / shape.head_dim},
          {"pool_size", 3},
          {"pool_relu", true},
          {"norm_kind", options.norm == NormKind::dyht ? "dyht" : "rms"},
          {"norm_clip", {-1.0, 1.0}},
          {"rms_norm_eps", 1e-6},
          {"qk_norm", true},
          {"post_attention_norm", true},
          {"bos_token_id", nullptr},
          {"eos_token_id", nullptr},
          {"pad_token_id", nullptr},
          {"torch_dtype", options.dtype == DType::bf16 ? "bfloat16" : "float32"}};
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text << std::flush;
  if (!file) fail(path, ": cannot write ", text.size(), " bytes: ", std::strerror(errno));
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

/// A directory that is removed unless it was moved to its place.
class StagingDirectory {
 public:
  explicit StagingDirectory(const std::string& target)
      : target_(without_slashes(target)), path_(target_ + ".partial") {
    std::error_code error;
    const bool empty = fs::is_directory(target, error) && fs::is_empty(target, error);
    if (fs::exists(target, error) && !empty)
      fail(target, ": already exists; remove it or choose another directory");
    if (!fs::create_directories(path_, error))
      fail(path_, ": cannot create: ", error ? error.message() : "it exists (left by an interrupted run?)");
  }
  ~StagingDirectory() {
    std::error_code ignored;
    if (!moved_) fs::remove_all(path_, ignored);
  }
  StagingDirectory(const StagingDirectory&) = delete;
  StagingDirectory& operator=(const StagingDirectory&) = delete;

  const std::string& path() const { return path_; }
  void move_to_target() {
    std::error_code error;
    fs::rename(path_, target_, error);
    if (error) fail(target_, ": cannot rename ", path_, " to it: ", error.message());
    moved_ = true;
  }

 private:
  std::string target_;
  std::string path_;
  bool moved_ = false;
};

void check_options(const SynthOptions& options) {
  if (options.out.empty()) fail("--out is missing, expected a directory");
  if (options.dtype != DType::bf16 && options.dtype != DType::f32)
    fail("--dtype ", name(options.dtype), " cannot be written, expected bf16 or fp32");
  if (!options.gate_zeros) return;
  if (!(*options.gate_zeros > 0 && *options.gate_zeros < 1))
    fail("--gate-zeros is ", *options.gate_zeros, ", expected a share above 0 and below 1");
  if (options.norm != NormKind::dyht)
    fail("--gate-zeros needs --norm dyht: its constant channel is made by the norm's beta");
}

}  // namespace

SynthShape parse_synth_shape(std::string_view text) {
  SynthShape shape;
  bool first = true;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const auto equals = part.find('=');
    if (equals != std::string_view::npos) {
      set_shape_value(shape, part.substr(0, equals), part.substr(equals + 1));
    } else if (first && part == "smollm2") {
      shape = smollm2_shape();
    } else if (first && part == "source") {
      shape = source_shape();
    } else if (!first || part != "tiny") {
      fail("--shape: \"", part, "\" is not a shape, expected tiny, smollm2 or source, then KEY=VALUE");
    }
    first = false;
  }
  return shape;
}

SynthSummary write_synthetic(const SynthOptions& options, ThreadPool& pool) {
  check_options(options);
  const SynthShape shape = parse_synth_shape(options.shape);
  const Json json = config_json(options, shape);
  const std::string config_text = dump_json(json, 2) + "\n";
  parse_config(config_text, "--shape " + options.shape);  // the same limits as for any checkpoint

  StagingDirectory staging(options.out);
  write_text(staging.path() + "/config.json", config_text);
  const std::vector<SynthTensor> tensors = synth_tensors(options, shape);
  std::vector<SafetensorsSpec> specs;
  specs.reserve(tensors.size());
  for (const SynthTensor& tensor : tensors) specs.push_back({tensor.name, options.dtype, tensor.shape});
  SafetensorsWriter writer(staging.path() + "/model.safetensors", specs,
                           {{"format", "pt"}, {"origin", json["_name_or_path"].get<std::string>()}});
  SynthSummary summary{.parameters = 0, .bytes = writer.file_bytes()};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (InterruptGuard::requested()) fail(options.out, ": interrupted; nothing was written");
    fill_tensor(tensors[i], options, pool, writer, i);
    summary.parameters += tensors[i].shape.elements();
  }
  writer.finish();
  staging.move_to_target();
  return summary;
}

}  // namespace asynct
