// The header of a safetensors file, parsed by events: time and memory stay linear in its length, and a
// document of the wrong form is refused at its first wrong event.
#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "asynct/base/checked.h"
#include "asynct/base/error.h"
#include "asynct/model/safetensors.h"

namespace asynct {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kMaxHeaderBytes = 100'000'000;  // the limit of the format's own library
constexpr std::size_t kMaxRank = 64;

/// Bits an element; 0 for a name the format does not have.
std::size_t dtype_bits(std::string_view dtype) {
  struct Known {
    std::string_view name;
    std::size_t bits;
  };
  constexpr Known kKnown[] = {{"F32", 32},    {"BF16", 16},   {"F16", 16},    {"F64", 64},    {"I64", 64},
                              {"I32", 32},    {"I16", 16},    {"I8", 8},      {"U64", 64},    {"U32", 32},
                              {"U16", 16},    {"U8", 8},      {"BOOL", 8},    {"C64", 64},    {"F8_E4M3", 8},
                              {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4}};
  for (const Known& known : kKnown)
    if (known.name == dtype) return known.bits;
  return 0;
}

/// {"name": {"dtype": s, "shape": [n...], "data_offsets": [n, n]}, ..., "__metadata__": {s: s, ...}}
class HeaderReader : public nlohmann::json::json_sax_t {
 public:
  explicit HeaderReader(std::string_view what) : what_(what) {}

  std::vector<SafetensorsEntry> take() { return std::move(entries_); }

  bool null() override { unexpected("null"); }
  bool boolean(bool /*value*/) override { unexpected("true or false"); }
  bool number_integer(number_integer_t /*value*/) override { unexpected("a negative number"); }
  bool number_float(number_float_t /*value*/, const string_t& text) override { unexpected(text); }
  bool binary(binary_t& /*value*/) override { unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ == State::shape) {
      if (entries_.back().shape.size() == kMaxRank) fail(where(), "more than ", kMaxRank, " dimensions");
      entries_.back().shape.push_back(checked_cast<std::int64_t>(value, where() + "dimension"));
    } else if (state_ == State::offsets) {
      if (offsets_++ == 2) fail(where(), "data_offsets has more than two entries");
      SafetensorsEntry& entry = entries_.back();
      (offsets_ == 1 ? entry.begin : entry.end) = checked_cast<std::size_t>(value, where() + "offset");
    } else {
      unexpected("a number");
    }
    return true;
  }

  bool string(string_t& value) override {
    if (state_ == State::metadata) return true;
    if (state_ != State::tensor || field_ != Field::dtype) unexpected("a string");
    entries_.back().dtype = value;
    field_ = Field::none;
    return true;
  }

  bool key(string_t& value) override {
    if (state_ == State::top) {
      if (!names_.insert(value).second) fail(what_, ": the header names \"", value, "\" twice");
      metadata_next_ = value == "__metadata__";
      if (!metadata_next_) entries_.emplace_back().name = value;
    } else if (state_ == State::tensor) {
      field_ = value == "dtype" ? Field::dtype : value == "shape" ? Field::shape : Field::offsets;
      if (field_ == Field::offsets && value != "data_offsets") fail(where(), "unknown key \"", value, "\"");
      const unsigned bit = 1U << static_cast<unsigned>(field_);
      if ((seen_ & bit) != 0) fail(where(), "key \"", value, "\" appears twice");
      seen_ |= bit;
    }
    return true;
  }

  bool start_object(std::size_t /*size*/) override {
    if (state_ == State::outside) {
      state_ = State::top;
    } else if (state_ == State::top) {
      state_ = metadata_next_ ? State::metadata : State::tensor;
      seen_ = 0;
      offsets_ = 0;
      field_ = Field::none;
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool end_object() override {
    if (state_ == State::tensor) {
      constexpr unsigned kAll = 0b1110;  // dtype, shape, offsets
      if (seen_ != kAll || offsets_ != 2)
        fail(where(), "expected the keys dtype, shape and data_offsets (two numbers)");
    }
    state_ = state_ == State::top ? State::outside : State::top;
    return true;
  }

  bool start_array(std::size_t /*size*/) override {
    if (state_ != State::tensor || (field_ != Field::shape && field_ != Field::offsets)) unexpected("a list");
    state_ = field_ == Field::shape ? State::shape : State::offsets;
    return true;
  }

  bool end_array() override {
    state_ = State::tensor;
    field_ = Field::none;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    fail(what_, ": the header is not valid JSON at byte ", position, ": ", error.what());
  }

 private:
  enum class State { outside, top, metadata, tensor, shape, offsets };
  enum class Field : unsigned { none, dtype, shape, offsets };

  std::string where() const {
    if (state_ == State::metadata || metadata_next_ || entries_.empty()) return what_ + ": header: ";
    return what_ + ": tensor \"" + entries_.back().name + "\": ";
  }
  [[noreturn]] void unexpected(std::string_view found) const { fail(where(), "unexpected ", found); }

  std::string what_;
  std::vector<SafetensorsEntry> entries_;
  std::unordered_set<std::string> names_;
  State state_ = State::outside;
  Field field_ = Field::none;
  bool metadata_next_ = false;
  unsigned seen_ = 0;
  int offsets_ = 0;
};

void check_size(const SafetensorsEntry& entry, const std::string& what) {
  const std::size_t bits = dtype_bits(entry.dtype);
  if (bits == 0) fail(what, ": unknown dtype \"", entry.dtype, "\"");
  if (entry.begin > entry.end)
    fail(what, ": data_offsets [", entry.begin, ", ", entry.end, "] run backwards");
  std::size_t total = bits;
  for (const std::int64_t dimension : entry.shape)
    total = checked_mul(total, static_cast<std::size_t>(dimension), what + ": size");
  if (total % 8 != 0) fail(what, ": ", total, " bits are not whole bytes");
  if (total / 8 != entry.end - entry.begin)
    fail(what, ": shape and dtype ", entry.dtype, " need ", total / 8, " bytes, data_offsets give ",
         entry.end - entry.begin);
}

}  // namespace

std::vector<SafetensorsEntry> parse_safetensors(std::span<const std::byte> file, std::string_view what) {
  if (file.size() < kLengthBytes)
    fail(what, ": ", file.size(), " bytes are too few for a safetensors file (its header length takes 8)");
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > kMaxHeaderBytes)
    fail(what, ": header length ", length, " is above the limit of ", kMaxHeaderBytes,
         " bytes (is this a safetensors file?)");
  if (length > file.size() - kLengthBytes)
    fail(what, ": header length ", length, " reaches past the end of the file of ", file.size(), " bytes");
  const auto header = file.subspan(kLengthBytes, length);
  const std::string_view text(reinterpret_cast<const char*>(header.data()), header.size());
  if (text.empty() || text[0] != '{') fail(what, ": the header does not begin with '{'");

  HeaderReader reader(what);
  nlohmann::json::sax_parse(text, &reader);
  std::vector<SafetensorsEntry> entries = reader.take();

  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  const std::size_t data = kLengthBytes + static_cast<std::size_t>(length);
  std::size_t expected = 0;
  for (SafetensorsEntry& entry : entries) {
    const std::string name = cat(what, ": tensor \"", entry.name, "\"");
    check_size(entry, name);
    if (entry.begin != expected)
      fail(name, ": data begin at offset ", entry.begin, ", expected ", expected,
           entry.begin < expected ? " (tensors overlap)" : " (a hole)");
    if (entry.end > file.size() - data)
      fail(name, ": data end at offset ", entry.end, ", but the file holds only ", file.size() - data,
           " bytes of data (truncated?)");
    expected = entry.end;
    entry.begin += data;
    entry.end += data;
  }
  if (expected != file.size() - data)
    fail(what, ": the file holds ", file.size() - data, " bytes of data, its tensors ", expected);
  return entries;
}

}  // namespace asynct
