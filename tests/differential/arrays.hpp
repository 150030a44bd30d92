// Arrays in device memory, for tests that call Program directly. The CPU tests and the GPU tests share them.
// SPDX-License-Identifier: MIT
#pragma once
#include "tests/differential/harness.hpp"

namespace kvjit::test {

class Arrays {
 public:
  explicit Arrays(const std::shared_ptr<Context>& context) : backend_(context->backend()) {}
  // Returns null for an empty array.
  template <class T>
  T* upload(const std::vector<T>& data) {
    if (data.empty()) return nullptr;
    buffers_.push_back(must(Buffer::make(backend_, data.size() * sizeof(T))));
    must(backend_->copy_to_device(buffers_.back().pointer(), data.data(), data.size() * sizeof(T)));
    return reinterpret_cast<T*>(buffers_.back().pointer());
  }
  // Waits for all queued work, then copies the array to the host.
  template <class T>
  void download(std::vector<T>& to, const void* from) {
    must(backend_->synchronize(nullptr));
    must(backend_->copy_to_host(to.data(), reinterpret_cast<DevicePointer>(from), to.size() * sizeof(T)));
  }

 private:
  std::shared_ptr<Backend> backend_;
  std::vector<Buffer> buffers_;
};

}  // namespace kvjit::test
