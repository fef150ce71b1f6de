#include "asynct/eval/xz.h"

#include <lzma.h>

#include "asynct/base/error.h"
#include "asynct/base/mapped_file.h"

namespace asynct {

std::string read_xz_file(const std::string& path, std::size_t limit) {
  const std::string packed = read_file(path, limit);
  constexpr std::uint64_t kMemory = std::uint64_t{256} << 20;  // what the decoder may allocate
  lzma_stream stream = LZMA_STREAM_INIT;
  if (lzma_stream_decoder(&stream, kMemory, LZMA_CONCATENATED) != LZMA_OK)
    fail(path, ": cannot start the xz decoder");
  struct End {
    lzma_stream* stream;
    ~End() { lzma_end(stream); }
  } end{&stream};

  std::string text;
  stream.next_in = reinterpret_cast<const std::uint8_t*>(packed.data());
  stream.avail_in = packed.size();
  lzma_ret state = LZMA_OK;
  while (state == LZMA_OK) {
    constexpr std::size_t kStep = std::size_t{1} << 20;
    const std::size_t done = text.size();
    if (done > limit) fail(path, ": unpacks to more than ", limit, " bytes");
    text.resize(done + kStep);
    stream.next_out = reinterpret_cast<std::uint8_t*>(text.data() + done);
    stream.avail_out = kStep;
    state = lzma_code(&stream, LZMA_FINISH);
    text.resize(done + kStep - stream.avail_out);
  }
  if (state != LZMA_STREAM_END)
    fail(path, ": not a whole xz file (liblzma code ", static_cast<int>(state), ")");
  return text;
}

}  // namespace asynct
