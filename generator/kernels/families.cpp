// The list of families that make_program walks. `operations` is missing on purpose: the runtime makes its kernels when
// a call needs one, because no spec names the two caches that a copy is for.
// SPDX-License-Identifier: MIT
#include "generator/kernels/families.hpp"

#include "generator/kernels/prefill/plan.hpp"

namespace kvjit {
namespace {

bool always(const Problem&) { return true; }

constexpr Family kFamilies[] = {
    {"decode", true, always, make_decode},
    {"prefill", true, has_prefill_rows, make_prefill},
    {"auxiliary", false, always, make_auxiliary},
    {"codec", false, always, make_codec},
    {"reference", false, always, make_reference},
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

}  // namespace kvjit
