// Stacks of fibres: where they are, and StackChange, code that goes on on another one, as AddressSanitizer has to be
// told; without it, nothing.
// SPDX-License-Identifier: MIT
#pragma once
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

// Says where the stacks are that it allocates.
class StackSource {
 public:
  StackSource(std::size_t bytes, Stack& made) : source_(bytes), made_(&made) {}
  boost::context::stack_context allocate() {
    const boost::context::stack_context stack = source_.allocate();
    *made_ = {static_cast<unsigned char*>(stack.sp) - stack.size, stack.size};
    return stack;
  }
  // Whoever gets that memory next finds no marks of frames in it.
  void deallocate(boost::context::stack_context& stack) {
    __asan_unpoison_memory_region(made_->bottom, made_->bytes);
    source_.deallocate(stack);
  }

 private:
  boost::context::protected_fixedsize_stack source_;
  Stack* made_;
};

// Lives from before this stack is left for `to` until it is back; `from`: who then left for it.
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

  // The first thing on a new stack, and the last.
  static void begin(Stack& from) { __sanitizer_finish_switch_fiber(nullptr, &from.bottom, &from.bytes); }
  static void end(const Stack& to) { __sanitizer_start_switch_fiber(nullptr, to.bottom, to.bytes); }

 private:
  Stack* from_;
  void* frames_ = nullptr;
};

}  // namespace kvjit
