// The list of families that make_program walks. `operations` is missing on purpose: the runtime makes its kernels when
// a call needs one, because no spec names the two caches that a copy is for.
// SPDX-License-Identifier: MIT
#include "generator/kernels/families.hpp"

namespace kvjit {
namespace {

bool always(const Problem&) { return true; }

// Whether decode would take the query rows in several chunks.
bool has_many_rows(const Problem& problem) { return problem.query_rows() > 64; }

constexpr Family kFamilies[] = {
    {"decode", true, always, make_decode},
    {"prefill", true, has_many_rows, make_prefill},
    {"auxiliary", false, always, make_auxiliary},
    {"codec", false, always, make_codec},
    {"reference", false, always, make_reference},
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

}  // namespace kvjit
