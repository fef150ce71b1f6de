#pragma once

#include <algorithm>
#include <cstdint>

#include "asynct/base/function_ref.h"
#include "asynct/base/thread_pool.h"

// How products are cut into pieces for workers. None of it changes a result, only who computes it.
namespace asynct::linear {

/// body(begin, end, worker) over blocks of at most `most` rows, nearly equal, a multiple of the workers in
/// number, so that none waits long for the last.
inline void for_row_blocks(ThreadPool& pool, std::int64_t rows, std::int64_t most,
                           FunctionRef<void(std::int64_t, std::int64_t, int)> body) {
  const std::int64_t workers = pool.size();
  const std::int64_t rounds = (rows + workers * most - 1) / (workers * most);
  const std::int64_t blocks = std::min(rows, rounds * workers);
  pool.parallel_for(blocks, 1, [&](std::int64_t first, std::int64_t last, int worker) {
    for (std::int64_t i = first; i < last; ++i) body(i * rows / blocks, (i + 1) * rows / blocks, worker);
  });
}

/// Panels of a piece when `panels` are shared by all workers: about four pieces each, whole units.
inline std::int64_t panel_pieces(std::int64_t panels, std::int64_t unit, const ThreadPool& pool) {
  const std::int64_t pieces = 4 * pool.size();
  return std::max<std::int64_t>(1, (panels + pieces * unit - 1) / (pieces * unit)) * unit;
}

/// An epilogue after work that was split by columns. Waking workers costs about what a few rows do.
inline void for_rows_after(ThreadPool& pool, std::int64_t rows,
                           FunctionRef<void(std::int64_t, std::int64_t, int)> epilogue) {
  constexpr std::int64_t kAlone = 4;
  if (rows <= kAlone)
    epilogue(0, rows, 0);
  else
    pool.parallel_for(rows, (rows + pool.size() - 1) / pool.size(), epilogue);
}

}  // namespace asynct::linear
