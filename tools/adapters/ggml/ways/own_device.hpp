// Way device: a device of the plugin's own, beside ggml's CPU device, which serves attention over host memory with
// kvjit's CPU back-end and nothing else. It is for ggml's own test suite: llama.cpp turns flash attention off where
// attention is not on the device of its layer.
// SPDX-License-Identifier: MIT
#pragma once
#include "ggml-backend-impl.h"

namespace kvjit::plugin {

// The registry of the plugin's own, with that device or without any.
ggml_backend_reg_t own_registry(bool has_device);

}  // namespace kvjit::plugin
