#include "asynct/eval/prompts.h"

#include <algorithm>

#include "asynct/base/error.h"

namespace asynct {
namespace {

constexpr std::string_view kTargetDelimiter = " ";
constexpr std::string_view kShotDelimiter = "\n\n";

std::string as_shot(const Example& example) {
  if (example.target.empty()) return example.text;  // no answer: no delimiters either
  return cat(example.text, kTargetDelimiter, example.target, kShotDelimiter);
}

}  // namespace

void check_pool(const TaskSpec& task, int shots, std::size_t pool) {
  const auto count = static_cast<std::size_t>(shots);
  const std::size_t needed = count == 0 ? 0 : count + (task.leave_document_out ? 1 : 0);
  if (pool < needed)
    fail("task ", task.name, ": ", shots, " shots asked for, but the pool has ", pool, " documents");
}

PromptBuilder::PromptBuilder(const TaskSpec& task, int shots, std::span<const Example> pool)
    : task_(task), shots_(static_cast<std::size_t>(shots)), pool_(pool), random_(kFewshotSeed) {
  check_pool(task, shots, pool.size());
}

void PromptBuilder::draw(const Example& document) {
  drawn_.clear();
  if (task_.sampler == Sampler::first) {
    for (std::size_t i = 0; i < shots_; ++i) drawn_.push_back(i);
    return;
  }
  if (!task_.leave_document_out) {
    drawn_ = random_.sample(pool_.size(), shots_);
    return;
  }
  const auto is_document = [&](std::size_t i) { return pool_[i].document == document.document; };
  drawn_ = random_.sample(pool_.size(), shots_ + 1);
  std::erase_if(drawn_, is_document);
  if (drawn_.size() < shots_) {  // more than one copy of it was drawn: draw again without any
    std::vector<std::size_t> others;
    for (std::size_t i = 0; i < pool_.size(); ++i)
      if (!is_document(i)) others.push_back(i);
    if (others.size() < shots_)
      fail("task ", task_.name, ": too few different documents for ", shots_, " shots");
    drawn_ = random_.sample(others.size(), shots_);
    for (std::size_t& index : drawn_) index = others[index];
  }
  drawn_.resize(shots_);
}

std::vector<std::string> PromptBuilder::next(const Example& document) {
  if (task_.type == OutputType::loglikelihood_rolling) return {document.text};
  std::string opening = task_.description;
  if (shots_ > 0) {
    draw(document);
    for (const std::size_t index : drawn_) opening += as_shot(pool_[index]);
  }
  if (document.contexts.empty()) return {opening + document.text};
  std::vector<std::string> contexts;
  for (const std::string& context : document.contexts) contexts.push_back(opening + context);
  return contexts;
}

std::string continuation(const TaskSpec& task, const Example& document, std::size_t index) {
  if (task.type == OutputType::loglikelihood) return document.target;
  const std::string& answer = document.contexts.empty() ? document.choices[index] : document.target;
  return cat(kTargetDelimiter, answer);
}

}  // namespace asynct
