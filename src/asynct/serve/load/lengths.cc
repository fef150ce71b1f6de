#include "asynct/serve/load/lengths.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "asynct/base/error.h"

namespace asynct::load {
namespace {

template <class Number>
bool read(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

}  // namespace

LengthDistribution LengthDistribution::parse(std::string_view text, std::string_view what) {
  LengthDistribution result;
  const auto wrong = [&] {
    fail(what, ": expected MEAN, MEAN:STDDEV or LO..HI with lengths of 1 to ", kMaxLength, ", found \"", text,
         "\"");
  };
  if (const std::size_t dots = text.find(".."); dots != std::string_view::npos) {
    if (!read(text.substr(0, dots), result.least_) || !read(text.substr(dots + 2), result.greatest_)) wrong();
  } else {
    const std::size_t colon = std::min(text.find(':'), text.size());
    if (!read(text.substr(0, colon), result.least_)) wrong();
    if (colon < text.size() && !read(text.substr(colon + 1), result.deviation_)) wrong();
    result.greatest_ = result.least_;
  }
  if (result.least_ < 1 || result.greatest_ < result.least_ || result.greatest_ > kMaxLength ||
      !(result.deviation_ >= 0 && result.deviation_ <= kMaxLength))
    wrong();
  return result;
}

std::int64_t LengthDistribution::draw(Random& random) const {
  if (deviation_ > 0) {
    const double length = std::round(static_cast<double>(least_) + deviation_ * random.normal());
    return static_cast<std::int64_t>(std::clamp(length, 1.0, static_cast<double>(kMaxLength)));
  }
  return least_ == greatest_ ? least_ : random.between(least_, greatest_);
}

double ArrivalProcess::next() {
  if (!std::isinf(rate_)) now_ += random_.exponential() / rate_;
  return now_;
}

double parse_rate(std::string_view text, std::string_view what) {
  double rate = 0;
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (!read(text, rate) || !(rate >= 1e-6 && rate <= 1e6))
    fail(what, ": expected requests a second (0.000001 to 1000000) or inf, found \"", text, "\"");
  return rate;
}

}  // namespace asynct::load
