// Stacks of fibres, and the calls by which AddressSanitizer is told that execution moves from one stack to another.
// Without AddressSanitizer these calls do nothing.
// SPDX-License-Identifier: MIT
#pragma once
#include <unistd.h>

#include <boost/context/protected_fixedsize_stack.hpp>
#include <cstddef>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KVJIT_HAS_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(KVJIT_HAS_ASAN)
#include <sanitizer/asan_interface.h>
#else
inline void __asan_unpoison_memory_region(const void*, std::size_t) {}
inline void __sanitizer_start_switch_fiber(void**, const void*, std::size_t) {}
inline void __sanitizer_finish_switch_fiber(void*, const void**, std::size_t*) {}
#endif

namespace kvjit {

struct Stack {
  const void* bottom = nullptr;
  std::size_t bytes = 0;
};

// StackTraits tells Boost the size of a page. Boost's own traits hold a std::once_flag, whose code in a static library
// binds thread-local variables of libstdc++ at load time. A process that has opened libstdc++ by dlopen, such as Python
// with PyTorch, could not open libkvjit.so then.
struct StackTraits {
  static std::size_t page_size() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }
  static std::size_t default_size() { return 64 * page_size(); }
};

// A stack allocator that records the stack's address and size.
class StackSource {
 public:
  StackSource(std::size_t bytes, Stack& stack) : source_(bytes), stack_(&stack) {}
  boost::context::stack_context allocate() {
    const boost::context::stack_context stack = source_.allocate();
    *stack_ = {static_cast<unsigned char*>(stack.sp) - stack.size, stack.size};
    return stack;
  }
  // Removes AddressSanitizer's marks of frames, because the memory may get another use.
  void deallocate(boost::context::stack_context& stack) {
    __asan_unpoison_memory_region(stack_->bottom, stack_->bytes);
    source_.deallocate(stack);
  }

 private:
  boost::context::basic_protected_fixedsize_stack<StackTraits> source_;
  Stack* stack_;
};

// Announces a switch to the stack `to`. Construct it before the switch; it is destroyed when this stack runs again, and
// then sets `from` to the stack that switched back.
class StackChange {
 public:
  explicit StackChange(const Stack& to, Stack* from = nullptr) : from_(from) {
    __sanitizer_start_switch_fiber(&frames_, to.bottom, to.bytes);
  }
  ~StackChange() {
    __sanitizer_finish_switch_fiber(frames_, from_ ? &from_->bottom : nullptr, from_ ? &from_->bytes : nullptr);
  }
  StackChange(const StackChange&) = delete;
  StackChange& operator=(const StackChange&) = delete;

  // begin() is the first call on a new stack, end() the last.
  static void begin(Stack& from) { __sanitizer_finish_switch_fiber(nullptr, &from.bottom, &from.bytes); }
  static void end(const Stack& to) { __sanitizer_start_switch_fiber(nullptr, to.bottom, to.bytes); }

 private:
  Stack* from_;
  void* frames_ = nullptr;
};

}  // namespace kvjit
