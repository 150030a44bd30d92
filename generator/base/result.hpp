// Result<T>: a value or an Error. kvjit's own code throws no exception. An Error says what was asked, what is possible,
// and where in which file the cause is.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

namespace kvjit {

// The kind of a failure. Its number is the exit code of the command and the status of the C ABI.
enum class Code {
  internal = 1,     // a bug in kvjit
  usage = 2,        // a mistake on the command line
  bad_input = 3,    // a broken spec or data file
  unsupported = 4,  // the request is understood, but no kernel serves it
  compile = 5,      // the compiler refused a kernel's text
  differs = 6,      // results are outside the promised error
  environment = 7,  // something is missing: GPU, NVRTC, compiler, memory ...
  integrity = 8,    // an artefact is damaged or foreign
  cancelled = 9,    // the caller gave up
  sealed = 10,      // a kernel would have to be compiled, but the context is sealed
};

// A place in a text file.
struct Where {
  std::string file;          // its path; empty: no place is known
  int line = 0, column = 0;  // both count from 1; 0: unknown
  std::string excerpt = {};  // the text of the line, above the caret; may be empty
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

// The text of an error: "file:line:col: error: message", the line of the file, a caret, and "note: ..." for each note.
// It has no colour and ends with a newline.
std::string render(const Error& error);

// The candidate that is closest to `name` by edit distance, else the only one whose last part is `name` ("90a" of
// "sm_90a"), or "" if no candidate is likely to be meant.
std::string closest(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace kvjit

// Declares `name` as a reference to the value of expr, or returns its error.
#define KV_TRY(name, expr)                                          \
  auto name##_result = (expr);                                      \
  if (!name##_result) return tl::unexpected(name##_result.error()); \
  auto& name = *name##_result
// Returns the error of expr, a Result<void>, if it has one.
#define KV_CHECK(expr) \
  if (auto kv_checked = (expr); !kv_checked) return tl::unexpected(kv_checked.error())
