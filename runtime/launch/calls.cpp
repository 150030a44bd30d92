// Describes the value of a check record as an error: see calls.hpp.
// SPDX-License-Identifier: MIT
#include "runtime/launch/calls.hpp"

#include <fmt/format.h>

#include "runtime/launch/kv_checks.hpp"

namespace kvjit {

const char* to_string(kv::CheckedArray array) {
  constexpr const char* kNames[] = {"none",  "lengths",      "k_pages",  "v_pages", "pages",
                                    "slots", "query_starts"};
  return kNames[int(array)];
}

Result<void> check_passed(const kv::CheckRecord& record) {
  if (record.count == 0) return {};
  return refuse(fmt::format("{}[{}] is {}; {} to {} are possible ({} out of range)", to_string(record.array),
                            record.index, record.value, record.least, record.most, record.count));
}

}  // namespace kvjit
