#include "asynct/engine/allocation_counter.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::int64_t> g_allocations{0};
thread_local std::int64_t t_until_failure = 0;

}  // namespace

void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  ++g_allocations;
  return std::malloc(bytes > 0 ? bytes : 1);
}

void* operator new(std::size_t bytes) {
  if (t_until_failure > 0 && --t_until_failure == 0) throw std::bad_alloc();
  if (void* const memory = operator new(bytes, std::nothrow)) return memory;
  throw std::bad_alloc();
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t& /*tag*/) noexcept { std::free(memory); }

std::int64_t asynct::allocations() { return g_allocations; }
void asynct::fail_allocation(std::int64_t nth) { t_until_failure = nth; }
