#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace asynct {

/// A non-owning reference to a callable, two words, no allocation: for parameters that are called before the
/// function returns. (std::function_ref arrives with C++26.)
template <class Signature>
class FunctionRef;

template <class Result, class... Args>
class FunctionRef<Result(Args...)> {
 public:
  template <class Callable>
  requires(!std::is_same_v<std::remove_cvref_t<Callable>, FunctionRef> &&
           std::is_invocable_r_v<Result, Callable&, Args...>)
      FunctionRef(              // NOLINT(google-explicit-constructor,bugprone-forwarding-reference-overload)
          Callable&& callable)  // converts like a function parameter
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* object, Args... args) -> Result {
          return (*static_cast<std::remove_reference_t<Callable>*>(object))(std::forward<Args>(args)...);
        }) {}

  Result operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  Result (*call_)(void*, Args...);
};

}  // namespace asynct
