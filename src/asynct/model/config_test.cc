#include "asynct/model/config.h"

#include <cmath>

#include "asynct/base/json.h"
#include "asynct/model/test_files.h"

namespace asynct {
namespace {

using testing::expect_error;

const char* const kAsyncT = R"({"model_type": "asynct", "architectures": ["AsyncTForCausalLM"],
  "vocab_size": 4096, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 8,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 512,
  "rope_theta": 10000.0, "tie_word_embeddings": true, "hidden_act": "relu", "embedding_multiplier": 50.0,
  "attention_kind": "asynci", "attention_scale": null, "pool_size": 3, "pool_relu": true,
  "norm_kind": "dyht", "norm_clip": [-1.0, 1.0], "qk_norm": true, "post_attention_norm": true,
  "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": null, "torch_dtype": "bfloat16"})";

const char* const kLlama = R"({"model_type": "llama", "vocab_size": 49152, "hidden_size": 576,
  "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
  "hidden_act": "silu", "max_position_embeddings": 8192, "rms_norm_eps": 1e-05, "rope_theta": 100000,
  "rope_scaling": null, "rope_interleaved": false, "attention_bias": false, "attention_dropout": 0.0,
  "mlp_bias": false, "pretraining_tp": 1, "is_llama_config": true, "use_cache": true,
  "initializer_range": 0.04, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "transformers_version": "4.40.1", "bos_token_id": 1, "eos_token_id": [2, 7]})";

/// The text with one key set to a JSON value (added or replaced).
std::string with(const char* text, const std::string& key, const std::string& value) {
  Json json = Json::parse(text);
  json[key] = Json::parse(value);
  return json.dump();
}
std::string without(const char* text, const std::string& key) {
  Json json = Json::parse(text);
  json.erase(key);
  return json.dump();
}
ModelConfig parse(const std::string& text) { return parse_config(text, "config.json"); }

TEST(Config, AsyncT) {
  const ModelConfig c = parse(kAsyncT);
  EXPECT_EQ(c.model_type, "asynct");
  EXPECT_EQ(c.vocab_size, 4096);
  EXPECT_EQ(c.intermediate_size, 768);
  EXPECT_EQ(c.layers, 8);
  EXPECT_EQ(c.attention.heads, 4);
  EXPECT_EQ(c.attention.kv_heads, 2);
  EXPECT_EQ(c.attention.head_dim, 64);
  EXPECT_EQ(c.attention.kind, AttentionKind::asynci);
  EXPECT_EQ(c.attention.scale, 1.0F / 256);  // null: 1 / hidden_size
  EXPECT_EQ(c.attention.pool_size, 3);
  EXPECT_TRUE(c.attention.pool_relu);
  EXPECT_EQ(c.activation, Activation::relu);
  EXPECT_EQ(c.embedding_multiplier, 50);
  EXPECT_EQ(c.norm_kind, NormKind::dyht);
  EXPECT_EQ(c.bos_id, 0);
  EXPECT_EQ(c.eos_ids, std::vector<std::int32_t>{0});
  EXPECT_FALSE(c.pad_id.has_value());
}

TEST(Config, AsyncTDefaultsAndVariants) {
  EXPECT_EQ(parse(with(kAsyncT, "attention_scale", "0.015625")).attention.scale, 0.015625F);
  EXPECT_EQ(parse(without(kAsyncT, "pool_size")).attention.pool_size, 3);
  EXPECT_EQ(parse(without(kAsyncT, "embedding_multiplier")).embedding_multiplier, 1);
  EXPECT_EQ(parse(without(kAsyncT, "head_dim")).head_dim, 64);
  EXPECT_EQ(parse(without(kAsyncT, "num_key_value_heads")).kv_heads, 4);
  EXPECT_EQ(parse(with(kAsyncT, "norm_clip", "[-0.5, 2]")).clip_high, 2);
  EXPECT_EQ(parse(with(kAsyncT, "norm_kind", "\"rms\"")).norm_kind, NormKind::rms);
  const ModelConfig uniaffine = parse(with(kAsyncT, "attention_kind", "\"uniaffine\""));
  EXPECT_EQ(uniaffine.attention.kind, AttentionKind::asynci);
  EXPECT_EQ(uniaffine.attention.pool_size, 1);
  EXPECT_EQ(parse(with(kAsyncT, "attention_kind", "\"softmax\"")).attention.kind, AttentionKind::softmax);
}

TEST(Config, Llama) {
  const ModelConfig c = parse(kLlama);
  EXPECT_EQ(c.head_dim, 64);
  EXPECT_EQ(c.attention.kind, AttentionKind::softmax);
  EXPECT_EQ(c.attention.scale, 0.125F);
  EXPECT_EQ(c.activation, Activation::silu);
  EXPECT_EQ(c.norm_kind, NormKind::rms);
  EXPECT_EQ(c.rms_epsilon, 1e-5F);
  EXPECT_EQ(c.rope_theta, 100000);
  EXPECT_TRUE(c.tie_word_embeddings);
  EXPECT_FALSE(c.qk_norm);
  EXPECT_FALSE(c.post_attention_norm);
  EXPECT_EQ(c.eos_ids, (std::vector<std::int32_t>{2, 7}));
  EXPECT_FALSE(parse(without(kLlama, "tie_word_embeddings")).tie_word_embeddings);
}

TEST(Config, Qwen3WithRopeParameters) {
  std::string text = with(kLlama, "model_type", "\"qwen3\"");
  text = without(text.c_str(), "rope_theta");
  text = with(text.c_str(), "rope_parameters", R"({"rope_type": "default", "rope_theta": 1000000.0})");
  text = with(text.c_str(), "sliding_window", "null");
  text = with(text.c_str(), "layer_types", R"(["full_attention", "full_attention"])");
  const ModelConfig c = parse(text);
  EXPECT_EQ(c.rope_theta, 1e6);
  EXPECT_TRUE(c.qk_norm);
  EXPECT_EQ(c.head_dim, 128);  // its configuration's default, not hidden / heads
  EXPECT_EQ(c.attention.scale, static_cast<float>(1 / std::sqrt(128.0)));
  expect_error([&] { parse(with(text.c_str(), "layer_types", R"(["sliding_attention"])")); }, "layer_types");
}

TEST(Config, WhatWouldChangeTheModelIsRefused) {
  const struct {
    const char* base;
    const char* key;
    const char* value;
    const char* message;
  } kCases[] = {
      {kAsyncT, "residual_multiplier", "0.5", "unknown key residual_multiplier = 0.5"},
      {kAsyncT, "attention_kind", "\"differential\"", "not supported yet"},
      {kAsyncT, "attention_kind", "\"dual_chunk\"", "not supported yet"},
      {kAsyncT, "attention_kind", "\"linear\"", "expected one of \"asynci\""},
      {kAsyncT, "model_type", "\"gpt2\"", "model_type is \"gpt2\", expected one of \"asynct\" \"llama\""},
      {kAsyncT, "model_type", "7", "model_type is 7"},
      {kAsyncT, "vocab_size", "0", "vocab_size is 0, expected an integer from 1"},
      {kAsyncT, "vocab_size", "2147483648", "vocab_size is 2147483648"},
      {kAsyncT, "vocab_size", "18446744073709551615", "vocab_size is 18446744073709551615"},
      {kAsyncT, "hidden_size", "256.0", "hidden_size is 256.0, expected an integer"},
      {kAsyncT, "hidden_size", "\"256\"", "hidden_size is \"256\""},
      {kAsyncT, "hidden_size", "null", "hidden_size is missing"},
      {kAsyncT, "hidden_size", "-4", "hidden_size is -4"},
      {kAsyncT, "num_key_value_heads", "3", "expected a divisor of num_attention_heads = 4"},
      {kAsyncT, "head_dim", "63", "even number"},
      {kAsyncT, "rope_theta", "0", "rope_theta is 0"},
      {kAsyncT, "rope_theta", "[1]", "rope_theta is [1]"},
      {kAsyncT, "pool_size", "4", "1, 2, 3 or 5"},
      {kAsyncT, "pool_relu", "1", "pool_relu is 1, expected true or false"},
      {kAsyncT, "norm_clip", "[1, -1]", "norm_clip is [1,-1], expected [low, high]"},
      {kAsyncT, "norm_clip", "[-1]", "norm_clip"},
      {kAsyncT, "norm_clip", "[-1e300, 1e300]", "norm_clip"},
      {kAsyncT, "hidden_act", "\"gelu\"", "hidden_act is \"gelu\""},
      {kAsyncT, "embedding_multiplier", "\"x\"", "embedding_multiplier"},
      {kAsyncT, "eos_token_id", "4096", "token ids below vocab_size = 4096"},
      {kAsyncT, "eos_token_id", "[0, \"x\"]", "eos_token_id"},
      {kAsyncT, "bos_token_id", "[0, 1]", "expected one token id"},
      {kLlama, "attention_bias", "true", "attention_bias is true, expected false"},
      {kLlama, "mlp_bias", "true", "mlp_bias"},
      {kLlama, "pretraining_tp", "2", "pretraining_tp"},
      {kLlama, "attention_dropout", "0.1", "attention_dropout"},
      {kLlama, "rope_interleaved", "true", "rope_interleaved"},
      {kLlama, "rope_scaling", R"({"type": "linear", "factor": 2})", "rope_scaling: type is \"linear\""},
      {kLlama, "rope_parameters", R"({"rope_type": "yarn"})", "rope_type is \"yarn\", expected \"default\""},
      {kLlama, "rope_parameters", R"({"rope_type": "default", "factor": 2})", "unknown key factor"},
      {kLlama, "quantization_config", "{}", "unknown key quantization_config"},
      {kLlama, "use_sliding_window", "true", "use_sliding_window"},
      {kLlama, "hidden_size", "577", "gives no head size"},
  };
  for (const auto& each : kCases)
    expect_error([&] { parse(with(each.base, each.key, each.value)); }, std::string(each.message));
}

TEST(Config, NotJsonAndNotAnObject) {
  expect_error([] { parse("{\"vocab_size\": NaN}"); }, "not valid JSON");
  expect_error([] { parse("[]"); }, "expected a JSON object");
  expect_error([] { parse("{}"); }, "model_type is missing");
  expect_error([] { parse("{\"model_type\": \"asynct\", \"model_type\": \"llama\"}"); }, "appears twice");
  expect_error([] { parse(with(kAsyncT, "rope_theta", "1e300")); }, "rope_theta is 1e+300");
}

TEST(Config, DirectoryAndGenerationConfig) {
  const testing::TempDir dir;
  expect_error([&] { load_config(dir.path()); }, "config.json: cannot open");
  expect_error([&] { load_config(dir / "nothing"); }, "not a directory");
  dir.write("config.json", kLlama);
  EXPECT_EQ(load_config(dir.path()).eos_ids.size(), 2U);
  dir.write("generation_config.json", R"({"eos_token_id": 5, "temperature": 0.6})");
  EXPECT_EQ(load_config(dir.path()).eos_ids, std::vector<std::int32_t>{5});
  dir.write("generation_config.json", R"({"eos_token_id": "x"})");
  expect_error([&] { load_config(dir.path()); }, "generation_config.json: eos_token_id is \"x\"");
}

}  // namespace
}  // namespace asynct
