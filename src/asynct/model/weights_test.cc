#include "asynct/model/weights.h"

#include <cmath>
#include <limits>
#include <map>

#include "asynct/model/safetensors_writer.h"
#include "asynct/model/test_files.h"

namespace asynct {
namespace {

using testing::expect_error;
using testing::TempDir;

ModelConfig small(const std::string& model_type) {
  ModelConfig config;
  config.model_type = model_type;
  config.vocab_size = 6;
  config.hidden_size = 4;
  config.intermediate_size = 8;
  config.layers = 1;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_dim = 2;
  if (model_type != "asynct") {
    config.attention_form = AttentionForm::softmax;
    config.norm_kind = NormKind::rms;
    config.post_attention_norm = false;
    config.qk_norm = model_type == "qwen3";
  }
  return config;
}

using Specs = std::map<std::string, Shape>;

Specs matrices() {
  const std::string l = "model.layers.0.";
  return {{"model.embed_tokens.weight", {6, 4}},   {"lm_head.weight", {6, 4}},
          {l + "self_attn.q_proj.weight", {4, 4}}, {l + "self_attn.k_proj.weight", {2, 4}},
          {l + "self_attn.v_proj.weight", {2, 4}}, {l + "self_attn.o_proj.weight", {4, 4}},
          {l + "mlp.gate_proj.weight", {8, 4}},    {l + "mlp.up_proj.weight", {8, 4}},
          {l + "mlp.down_proj.weight", {4, 8}}};
}

Specs asynct_specs() {
  Specs specs = matrices();
  const std::string l = "model.layers.0.";
  for (const auto& norm :
       {l + "input_norm", l + "post_attention_norm", l + "pre_mlp_norm", std::string("model.norm")}) {
    specs[norm + ".alpha"] = {1};
    specs[norm + ".gamma"] = {4};
  }
  for (const auto& norm : {l + "self_attn.q_norm", l + "self_attn.k_norm"}) {
    specs[norm + ".alpha"] = {2};
    specs[norm + ".gamma"] = {1};
    specs[norm + ".beta"] = {2};
  }
  specs[l + "self_attn.sigma"] = {2};
  return specs;
}

Specs llama_specs() {
  Specs specs = matrices();
  const std::string l = "model.layers.0.";
  specs[l + "input_layernorm.weight"] = {4};
  specs[l + "post_attention_layernorm.weight"] = {4};
  specs["model.norm.weight"] = {4};
  return specs;
}

/// Writes every tensor with elements 1, 2, 3, ...; `odd` gets the value `odd_value` at element 1.
void write(const TempDir& dir, const Specs& specs, const std::string& odd = "", float odd_value = 0,
           const std::string& other_dtype = "") {
  const std::string path = dir / "model.safetensors";
  std::filesystem::remove(path);
  std::vector<SafetensorsSpec> list;
  for (const auto& [name, shape] : specs)
    list.push_back({name, name == other_dtype ? DType::f16 : DType::f32, shape});
  SafetensorsWriter writer(path, list);
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].dtype != DType::f32) continue;
    std::vector<float> values(static_cast<std::size_t>(list[i].shape.elements()));
    for (std::size_t j = 0; j < values.size(); ++j) values[j] = static_cast<float>(j + 1);
    if (list[i].name == odd) values.at(1) = odd_value;
    writer.write(i, 0, std::as_bytes(std::span(values)));
  }
  writer.finish();
}

std::string error_of_load(const TempDir& dir, const ModelConfig& config) {
  return testing::error_of([&] { load_weights(Checkpoint(dir.path()), config); });
}

TEST(Weights, AsyncTNames) {
  const TempDir dir;
  Specs specs = asynct_specs();
  specs["model.layers.0.self_attn.bias"] = {2};
  specs["model.layers.0.self_attn.rotary_emb.inv_freq"] = {1};  // harmless
  write(dir, specs);
  const Checkpoint checkpoint(dir.path());
  const ModelWeights weights = load_weights(checkpoint, small("asynct"));
  const LayerWeights& layer = weights.layers.at(0);
  EXPECT_EQ(layer.mlp.down.shape, (Shape{4, 8}));
  EXPECT_EQ(layer.input_norm.gamma, (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(layer.q_norm->beta, (std::vector<float>{1, 2}));
  EXPECT_TRUE(layer.mlp_norm.beta.empty());
  EXPECT_EQ(layer.heads.sigma, (std::vector<float>{1, 2}));
  EXPECT_EQ(layer.heads.bias, (std::vector<float>{1, 2}));
  EXPECT_TRUE(layer.heads.slope.empty());
  EXPECT_NE(weights.head.data, weights.embedding.data);
}

TEST(Weights, LlamaAndQwen3Names) {
  const TempDir dir;
  write(dir, llama_specs());
  const Checkpoint checkpoint(dir.path());
  const ModelWeights weights = load_weights(checkpoint, small("llama"));
  EXPECT_EQ(weights.layers[0].mlp_norm.gamma.size(), 4U);
  EXPECT_FALSE(weights.layers[0].post_attention_norm.has_value());
  EXPECT_TRUE(weights.layers[0].heads.sigma.empty());
  expect_error([&] { load_weights(checkpoint, small("qwen3")); }, "self_attn.q_norm.weight\" is missing");
}

TEST(Weights, UniaffineHasNoSigma) {
  const TempDir dir;
  Specs specs = asynct_specs();
  ModelConfig config = small("asynct");
  config.attention_form = AttentionForm::uniaffine;
  write(dir, specs);
  EXPECT_NE(error_of_load(dir, config).find("self_attn.sigma\" is not part of this"), std::string::npos);
  specs.erase("model.layers.0.self_attn.sigma");
  write(dir, specs);
  const Checkpoint checkpoint(dir.path());
  EXPECT_EQ(load_weights(checkpoint, config).layers[0].heads.sigma, (std::vector<float>{0, 0}));
}

TEST(Weights, MissingExtraMisshapenNotFinite) {
  const TempDir dir;
  const ModelConfig config = small("asynct");
  const auto with = [](const std::string& name, Shape shape) {
    Specs specs = asynct_specs();
    specs[name] = shape;
    return specs;
  };
  for (const auto& [name, shape] : asynct_specs()) {
    Specs specs = asynct_specs();
    specs.erase(name);
    write(dir, specs);
    const bool optional = name.ends_with(".beta");
    EXPECT_EQ(error_of_load(dir, config).find("is missing") != std::string::npos, !optional) << name;
    write(dir, with(name, {3, 5}));
    EXPECT_NE(error_of_load(dir, config).find(name + "\" has shape [3, 5], expected ["), std::string::npos)
        << name;
  }
  write(dir, with("model.layers.1.self_attn.sigma", {2}));
  EXPECT_NE(error_of_load(dir, config).find("model.layers.1.self_attn.sigma\" is not part"),
            std::string::npos);
  write(dir, with("model.layers.0.self_attn.q_proj.bias", {4}));
  EXPECT_NE(error_of_load(dir, config).find("not part of this asynct model (1 such)"), std::string::npos);
  write(dir, asynct_specs(), "model.layers.0.self_attn.sigma", std::nanf(""));
  EXPECT_NE(error_of_load(dir, config).find("sigma\": element 1 is nan"), std::string::npos);
  write(dir, asynct_specs(), "model.norm.gamma", std::numeric_limits<float>::infinity());
  EXPECT_NE(error_of_load(dir, config).find("element 1 is inf"), std::string::npos);
  write(dir, asynct_specs(), "", 0, "model.layers.0.self_attn.k_proj.weight");
  EXPECT_NE(error_of_load(dir, config).find("fp32 and fp16 weights in one operator"), std::string::npos);
}

TEST(Weights, TiedHeadMayBeThereWhenItIsTheEmbedding) {
  const TempDir dir;
  ModelConfig config = small("asynct");
  config.tie_word_embeddings = true;
  write(dir, asynct_specs());
  EXPECT_EQ(error_of_load(dir, config), "no error");
  write(dir, asynct_specs(), "lm_head.weight", 9);
  EXPECT_NE(error_of_load(dir, config).find("lm_head.weight\" differs from the embedding"),
            std::string::npos);
}

}  // namespace
}  // namespace asynct
