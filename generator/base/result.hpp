// Result<T>: a value or an Error. Nothing of ours throws; an Error says what was asked, what is possible and where.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

namespace kvjit {

// What kind of failure. The number is the exit code of the command and the status of the C ABI.
enum class Code {
  internal = 1,     // a bug of ours
  usage = 2,        // the command line
  bad_input = 3,    // a broken spec or data file
  unsupported = 4,  // understood, but nothing serves it
  compile = 5,      // the kernel compiler refused our text
  differs = 6,      // results are outside the promised error
  environment = 7,  // no GPU, no NVRTC, no compiler, no memory ...
  integrity = 8,    // a damaged or foreign artefact
  cancelled = 9,    // given up by who asked for it
  sealed = 10,      // would have to be compiled, after a context was told to compile no more
};

// A place in a text file. line and column count from 1; 0 means unknown.
struct Where {
  std::string file;
  int line = 0, column = 0;
  std::string excerpt = {};  // the source line itself, for the caret; may be empty
};

struct Error {
  Code code = Code::internal;
  std::string message;
  Where where = {};
  std::vector<std::string> notes = {};  // "did you mean ...", the alternatives, each refused candidate
};

template <class T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> fail(Code code, std::string message, Where where = {},
                                  std::vector<std::string> notes = {}) {
  return tl::unexpected<Error>(Error{code, std::move(message), std::move(where), std::move(notes)});
}

// file:line:col: error: message / the source line / a caret / one "note: ..." a note. No colour; ends with a newline.
std::string render(const Error& error);

// The candidate closest to `name` by edit distance, or "" if none is close enough to be a typing slip.
std::string closest(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace kvjit

// auto& name = value of expr, or return its error.
#define KV_TRY(name, expr)                                          \
  auto name##_result = (expr);                                      \
  if (!name##_result) return tl::unexpected(name##_result.error()); \
  auto& name = *name##_result
// The same for a Result<void>.
#define KV_CHECK(expr) \
  if (auto kv_checked = (expr); !kv_checked) return tl::unexpected(kv_checked.error())
