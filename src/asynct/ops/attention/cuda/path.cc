#include "asynct/ops/attention/cuda/path.h"

#include <bit>
#include <sstream>

#include "asynct/base/error.h"
#include "asynct/ops/attention/cuda/policy.h"
#include "asynct/ops/cuda/device.h"

namespace asynct::cuda {
namespace {

bool power_of_two(std::int32_t n) { return std::has_single_bit(static_cast<std::uint32_t>(n)); }

/// Why neither decode nor prefill of sm_90a takes a case that the plain path takes, empty when one does.
std::string refusal(const AttentionCase& wanted, bool is_decode) {
  std::ostringstream reason;
  if (wanted.compute_capability != 90)
    reason << "compute capability " << wanted.compute_capability / 10 << "."
           << wanted.compute_capability % 10;
  else if (wanted.head_dim > 128)
    reason << "head_dim " << wanted.head_dim;
  else if (wanted.block_size == 0)
    reason << "keys and values without blocks";
  else if (!power_of_two(wanted.block_size) || wanted.block_size < (is_decode ? 8 : 16))
    reason << "blocks of " << wanted.block_size << " tokens";
  else if (!is_decode && !power_of_two(wanted.group))
    reason << "prefill with " << wanted.group << " query heads a KV head";
  return reason.str();
}

}  // namespace

std::string_view name(AttentionPath path) {
  switch (path) {
    case AttentionPath::decode:
      return "decode for sm_90a";
    case AttentionPath::prefill:
      return "prefill for sm_90a";
    case AttentionPath::plain:
      break;
  }
  return "plain";
}

AttentionChoice choose_path(const AttentionCase& wanted) {
  expect_capability("attention", wanted.compute_capability);
  if (wanted.dtype != DType::bf16 && wanted.dtype != DType::f16)
    fail("attention: dtype ", name(wanted.dtype), ", expected bf16 or fp16");
  if (wanted.head_dim != 64 && wanted.head_dim != 128 && wanted.head_dim != 256)
    fail("attention: head_dim ", wanted.head_dim, ", expected 64, 128 or 256");
  if (wanted.pool_size != 1 && wanted.pool_size != 2 && wanted.pool_size != 3 && wanted.pool_size != 5)
    fail("attention: pool_size ", wanted.pool_size, ", expected 1, 2, 3 or 5");
  if (wanted.group < 1 || wanted.group > kDecodeRows)
    fail("attention: ", wanted.group, " query heads a KV head, expected 1 to ", kDecodeRows);
  if (wanted.block_size < 0) fail("attention: blocks of ", wanted.block_size, " tokens, expected 0 or more");
  const bool is_decode = wanted.tokens <= kDecodeRows / wanted.group;
  std::string reason = refusal(wanted, is_decode);
  if (!reason.empty()) return {AttentionPath::plain, std::move(reason)};
  return {is_decode ? AttentionPath::decode : AttentionPath::prefill, {}};
}

std::string describe(const AttentionChoice& choice) {
  std::string text(name(choice.path));
  if (!choice.reason.empty()) text += ": " + choice.reason;
  return text;
}

}  // namespace asynct::cuda
