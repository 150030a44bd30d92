// Way hook: ggml-cuda, built with ggml-cuda-hook.patch, asks a function that the plugin sets.
// SPDX-License-Identifier: MIT
#pragma once
#include "ggml-backend-impl.h"

namespace kvjit::plugin {

// Sets the hook of a registry. False if it offers none.
bool set_hook(ggml_backend_reg_t registry);

}  // namespace kvjit::plugin
