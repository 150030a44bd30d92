// The decision on each attention node, which all ways in share: supports_op asks whether the device serves it, and the
// compute asks who does.
// SPDX-License-Identifier: MIT
#pragma once
#include "ggml-backend-impl.h"
#include "server.hpp"

namespace kvjit::plugin {

// Whether the device serves a node, with kvjit or without. ggml_serves: the device does so itself. Programs of nodes
// that it does not serve are compiled now; programs of others are requested, and the device serves meanwhile.
bool is_served(ggml_backend_dev_t device, const Node& node, bool ggml_serves);

// The server that takes a node now; null if the node is left to the device.
Server* taker_of(ggml_backend_dev_t device, const Node& node, bool ggml_serves);

}  // namespace kvjit::plugin
