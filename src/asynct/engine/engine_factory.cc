#include "asynct/engine/engine_factory.h"

#include <utility>

#include "asynct/base/error.h"
#include "asynct/base/limits.h"
#include "asynct/base/log.h"
#include "asynct/engine/cpu_runner.h"
#include "asynct/engine/offline_model.h"

namespace asynct {
namespace {

constexpr std::int32_t kBlockSize = 16;

}  // namespace

OpenedModel open_runner(const std::string& dir, const ModelOptions& options) {
  if (options.device != "cpu") fail("device ", options.device, ": this build runs on cpu only");
  if (options.threads < 0 || options.threads > 1024)
    fail("threads: ", options.threads, ", expected 1 to 1024");
  if (options.batch_tokens < 1 || options.batch_tokens > (1 << 20))
    fail("batch tokens: ", options.batch_tokens, ", expected 1 to ", 1 << 20);
  const int threads = options.threads == 0 ? available_cores() : options.threads;
  if (options.kv_bytes < 0) fail("KV cache: ", options.kv_bytes, " bytes, expected at least 0");
  const Isa isa = select_isa();
  ModelSource source = open_source(dir);
  ModelReport report = inspect_model(source);
  auto runner = std::make_unique<CpuRunner>(
      std::move(source), CpuRunner::Options{.threads = threads,
                                            .isa = isa,
                                            .precision = options.precision,
                                            .max_rows = options.batch_tokens,
                                            .max_sequences = options.max_sequences,
                                            .block_size = kBlockSize,
                                            .kv_bytes = static_cast<std::size_t>(options.kv_bytes)});
  log(LogLevel::debug,
      cat("cpu kernels: ", name(isa), ", ", threads, " threads, ", runner->decoder().weight_bytes() >> 20,
          " MiB of packed weights, ", runner->cache().blocks(), " KV blocks of ", kBlockSize, " tokens, ",
          runner->max_rows(), " tokens a step"));
  const std::vector<std::int32_t> ends = runner->decoder().config().eos_ids;
  const EngineOptions engine{.blocks = runner->cache().blocks(),
                             .block_size = kBlockSize,
                             .batch_tokens = runner->max_rows(),
                             .max_sequences = options.max_sequences};
  return {.runner = std::move(runner),
          .engine = engine,
          .end_tokens = ends,
          .report = std::move(report),
          .isa = isa,
          .threads = threads};
}

void check_vocabulary(const std::string& dir, const OpenedModel& model, const Tokenizer& tokenizer) {
  if (tokenizer.vocab_size() > model.runner->vocabulary())
    fail(dir, ": the tokenizer has ", tokenizer.vocab_size(), " tokens, the model ",
         model.runner->vocabulary());
}

std::vector<Token> end_tokens_of(const OpenedModel& model, const Tokenizer& tokenizer) {
  if (model.end_tokens.empty() && tokenizer.eos()) return {*tokenizer.eos()};
  return model.end_tokens;
}

std::unique_ptr<LanguageModel> open_model(const std::string& dir, const ModelOptions& options) {
  Tokenizer tokenizer = Tokenizer::load(dir);
  OpenedModel opened = open_runner(dir, options);
  check_vocabulary(dir, opened, tokenizer);
  std::vector<Token> ends = end_tokens_of(opened, tokenizer);
  return std::make_unique<OfflineModel>(std::move(opened.runner), std::move(tokenizer), std::move(ends),
                                        opened.engine);
}

}  // namespace asynct
