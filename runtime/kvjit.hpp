// C++17 wrapper of runtime/kvjit.h: handles and memory that free themselves. It is header only, needs the standard
// library only and throws nothing. Each call returns the C status and fills a kvjit_error, so the manual in kvjit.h
// holds unchanged.
// SPDX-License-Identifier: MIT
#pragma once
#if __cplusplus < 201703L
#error "kvjit.hpp needs C++17 (-std=c++17); kvjit.h is C89 and serves older compilers"
#endif
#include <memory>
#include <utility>

#include "kvjit.h"

namespace kvjit::api {

// A sized struct with every default: auto call = sized<kvjit_attention_call>();
template <class Struct>
Struct sized() {
  Struct value;
  KVJIT_INIT(value);
  return value;
}

namespace detail {
struct DestroyContext {
  void operator()(kvjit_context* context) const { kvjit_context_destroy(context); }
};
struct DestroyProgram {
  void operator()(kvjit_program* program) const { kvjit_program_destroy(program); }
};
}  // namespace detail

// A context. Null until open() succeeds; get() is the handle for the functions of kvjit.h.
class Context : public std::unique_ptr<kvjit_context, detail::DestroyContext> {
 public:
  kvjit_status open(const kvjit_context_options& options, kvjit_error& error) {
    kvjit_context* opened = nullptr;
    const kvjit_status status = kvjit_context_create(&options, &opened, &error);
    if (status == KVJIT_OK) reset(opened);
    return status;
  }
};

// A program, likewise.
class Program : public std::unique_ptr<kvjit_program, detail::DestroyProgram> {
 public:
  kvjit_status open(const Context& context, const char* toml, const char* file_name, const char* arch,
                    kvjit_error& error) {
    kvjit_program* opened = nullptr;
    const kvjit_status status = kvjit_program_create(context.get(), toml, file_name, arch, &opened, &error);
    if (status == KVJIT_OK) reset(opened);
    return status;
  }
};

// Device memory of kvjit_allocate. It must not outlive its context.
class Memory {
 public:
  Memory() = default;
  Memory(Memory&& other) noexcept
      : context_(other.context_), pointer_(std::exchange(other.pointer_, nullptr)), bytes_(other.bytes_) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(pointer_, other.pointer_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Memory() {
    if (pointer_) kvjit_release(context_, pointer_);
  }
  kvjit_status allocate(const Context& context, size_t bytes, kvjit_error& error) {
    void* pointer = nullptr;
    const kvjit_status status = kvjit_allocate(context.get(), bytes, &pointer, &error);
    if (status != KVJIT_OK) return status;
    if (pointer_) kvjit_release(context_, pointer_);
    context_ = context.get();
    pointer_ = pointer;
    bytes_ = bytes;
    return status;
  }
  void* get() const { return pointer_; }
  size_t bytes() const { return bytes_; }

 private:
  kvjit_context* context_ = nullptr;
  void* pointer_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace kvjit::api
