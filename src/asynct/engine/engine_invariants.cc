#include "asynct/engine/engine_invariants.h"

#include <algorithm>
#include <map>
#include <set>

#include "asynct/base/error.h"

namespace asynct {
namespace {

using State = Node::State;
using Members = std::map<RequestId, const EngineSnapshot::Member*>;

std::string check_blocks(const EngineSnapshot& snapshot) {
  std::vector<std::int32_t> held(snapshot.blocks.size(), 0);
  for (const auto& member : snapshot.members)
    for (const std::int32_t block : member.blocks) {
      if (block < 0 || static_cast<std::size_t>(block) >= held.size())
        return cat("request ", member.id, " holds block ", block, ", there is none");
      ++held[static_cast<std::size_t>(block)];
    }
  std::vector<char> free(held.size(), 0);
  for (const std::int32_t block : snapshot.free_queue)
    if (free[static_cast<std::size_t>(block)]++ != 0) return cat("block ", block, " is free twice");
  for (std::size_t block = 0; block < held.size(); ++block) {
    const auto& seen = snapshot.blocks[block];
    if (held[block] != seen.references)
      return cat("block ", block, " has ", seen.references, " references, ", held[block], " are held");
    if ((held[block] == 0) != (free[block] != 0))
      return cat("block ", block, " has ", held[block], " holders, free: ", int{free[block]});
    if (seen.kept != (seen.cached_tokens > 0))
      return cat("block ", block, ": kept is ", seen.kept, " with ", seen.cached_tokens, " cached tokens");
    if (seen.cached_tokens == 0 || seen.cached_parent < 0) continue;
    const auto& parent = snapshot.blocks[static_cast<std::size_t>(seen.cached_parent)];
    if (parent.cached_tokens != snapshot.block_size)
      return cat("block ", block, " continues block ", seen.cached_parent, ", which is not cached whole");
  }
  return {};
}

std::string check_tokens(const EngineSnapshot& snapshot, const EngineSnapshot::Member& member) {
  const std::int64_t size = snapshot.block_size;
  const bool started = member.state == State::running || member.state == State::holding;
  if (!started)
    return member.blocks.empty() && member.length == 0
               ? std::string()
               : cat("request ", member.id, " has not started and holds ", member.blocks.size(), " blocks");
  if (static_cast<std::int64_t>(member.blocks.size()) != (member.length + size - 1) / size)
    return cat("request ", member.id, ": ", member.blocks.size(), " blocks for ", member.length, " tokens");
  if (member.length < member.begin + member.next_row || member.length > member.begin + member.tokens)
    return cat("request ", member.id, ": ", member.length, " tokens in the cache, ", member.begin, " + ",
               member.next_row, " computed of ", member.tokens);
  if (member.state == State::holding && member.next_row != member.tokens)
    return cat("request ", member.id, " holds its blocks with ", member.tokens - member.next_row,
               " rows to run");
  if (member.state == State::running && member.next_row >= member.tokens)
    return cat("request ", member.id, " runs with nothing to do");
  for (std::int64_t i = 0; i < member.cached_blocks; ++i) {
    const auto& block = snapshot.blocks[static_cast<std::size_t>(member.blocks[static_cast<std::size_t>(i)])];
    const std::int32_t before = i > 0 ? member.blocks[static_cast<std::size_t>(i) - 1] : -1;
    if (block.cached_tokens != size || block.cached_parent != before)
      return cat("request ", member.id, ": block ", i, " should be cached after block ", before);
  }
  return {};
}

std::string check_states(const EngineSnapshot& snapshot, const Members& members) {
  const std::set<RequestId> started(snapshot.started.begin(), snapshot.started.end());
  const std::set<RequestId> waiting(snapshot.waiting.begin(), snapshot.waiting.end());
  if (started.size() != snapshot.started.size() || waiting.size() != snapshot.waiting.size())
    return "a request is in a list twice";
  std::int32_t running = 0;
  std::int64_t promised = 0;
  std::map<RequestId, std::size_t> children;
  std::map<RequestId, int> borrowers;
  for (const auto& member : snapshot.members) {
    const bool has_started = member.state == State::running || member.state == State::holding;
    if (member.state == State::done) return cat("request ", member.id, " is done and still here");
    if (has_started != started.contains(member.id) ||
        (member.state == State::waiting) != waiting.contains(member.id))
      return cat("request ", member.id, " is in the wrong list");
    if (member.awaits && (has_started || *member.awaits >= std::pair(member.priority, member.id)))
      return cat("request ", member.id, " waits for the prefix of ", member.awaits->second);
    if (!has_started && member.promise != 0) return cat("request ", member.id, " waits with a promise");
    running += member.state == State::running ? 1 : 0;
    promised += member.promise;
    if (member.parent < 0) {
      if (member.state == State::blocked || member.borrowed) return cat("root ", member.id, " is blocked");
      continue;
    }
    ++children[member.parent];
    borrowers[member.parent] += member.borrowed ? 1 : 0;
    const auto parent = members.find(member.parent);
    if (parent == members.end()) return cat("request ", member.id, " has outlived its parent");
    if ((member.state == State::blocked) == (parent->second->state == State::holding))
      return cat("request ", member.id, " and its parent do not agree whether it may start");
  }
  for (const auto& member : snapshot.members) {
    if (children[member.id] != member.children)
      return cat("request ", member.id, " counts ", member.children, " children, ", children[member.id],
                 " live");
    if (borrowers[member.id] != (member.lent ? 1 : 0))
      return cat("request ", member.id, " lends to ", borrowers[member.id]);
  }
  if (running != snapshot.running) return cat(running, " run, ", snapshot.running, " are counted");
  if (promised != snapshot.promised)
    return cat(promised, " blocks promised, ", snapshot.promised, " are counted");
  return {};
}

std::string check_order(const std::vector<RequestId>& list, const Members& members) {
  for (std::size_t i = 1; i < list.size(); ++i) {
    const auto& before = *members.at(list[i - 1]);
    const auto& after = *members.at(list[i]);
    if (std::pair(before.priority, before.id) >= std::pair(after.priority, after.id))
      return cat("request ", after.id, " stands behind ", before.id);
  }
  return {};
}

}  // namespace

std::string check(const EngineSnapshot& snapshot) {
  Members members;
  for (const auto& member : snapshot.members) members[member.id] = &member;
  for (const auto* list : {&snapshot.started, &snapshot.waiting})
    for (const RequestId id : *list)
      if (!members.contains(id)) return cat("request ", id, " has left and is still in a list");
  std::string wrong = check_blocks(snapshot);
  for (const auto& member : snapshot.members)
    if (wrong.empty()) wrong = check_tokens(snapshot, member);
  if (wrong.empty()) wrong = check_states(snapshot, members);
  for (const auto* list : {&snapshot.started, &snapshot.waiting})
    if (wrong.empty()) wrong = check_order(*list, members);
  return wrong;
}

}  // namespace asynct
