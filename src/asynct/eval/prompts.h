#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "asynct/eval/python_random.h"
#include "asynct/eval/task.h"

namespace asynct {

/// Seed of few-shot sampling: lm-eval's default.
inline constexpr std::uint32_t kFewshotSeed = 1234;

/// Error: a pool of `pool` documents is too small for `shots` shots.
void check_pool(const TaskSpec& task, int shots, std::size_t pool);

/// Builds the prompts of a task's documents. Call it for document 0, 1, 2, ... in order: random shots are one
/// stream of draws.
class PromptBuilder {
 public:
  /// `pool` outlives the builder; it may be empty when shots == 0. Error: the pool has too few documents.
  PromptBuilder(const TaskSpec& task, int shots, std::span<const Example> pool);

  /// Contexts of the next document: one, or one a choice when the choices are contexts.
  std::vector<std::string> next(const Example& document);

  /// Indices that the last call drew.
  std::span<const std::size_t> drawn() const { return drawn_; }

 private:
  void draw(const Example& document);

  const TaskSpec& task_;
  std::size_t shots_;
  std::span<const Example> pool_;
  PythonRandom random_;
  std::vector<std::size_t> drawn_;
};

/// What the model continues `context` with, for choice `index` (0 for tasks without choices).
std::string continuation(const TaskSpec& task, const Example& document, std::size_t index);

}  // namespace asynct
