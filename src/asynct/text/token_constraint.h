#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "asynct/text/token.h"

namespace asynct {

/// Which tokens one text may go on with, whatever the model wants. Used by one thread; nothing throws.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  /// Sets bit t % 32 of word t / 32 for each token t that may come next, and clears the others. Not for
  /// tokens that end the text: complete() says whether they may come.
  virtual void fill(std::span<std::uint32_t> allowed) = 0;
  /// The token came. False: it may not, or what follows it cannot be found out.
  virtual bool accept(Token token) = 0;
  /// Whether the text may end here.
  virtual bool complete() const = 0;
  /// Whether fill() or accept() could not find out what may follow; fill() allows nothing from then on, and
  /// complete() is false.
  virtual bool failed() const = 0;
  /// What went wrong, when fill() allows nothing and complete() is false, or accept() was false.
  virtual std::string_view error() const = 0;
};

/// What texts must be like. Immutable: any number of threads and texts share one.
class Constraint {
 public:
  virtual ~Constraint() = default;
  /// At the beginning of a text.
  virtual std::unique_ptr<TokenConstraint> start() const = 0;
};

}  // namespace asynct
