// hook_grammar: parses the expression of a hook, checks its types, and prints it anew from what was parsed. So the text
// that goes into a kernel has tokens of this grammar only, and none of the file's own characters.
//
//   expression := choice                                                    a float or an int
//   choice     := binary [ '?' choice ':' choice ]
//   binary     := unary { operator unary }                                  operators bind as in C++
//   operator   := '||' | '&&' | '==' | '!=' | '<' | '<=' | '>' | '>=' | '+' | '-' | '*' | '/' | '%'
//   unary      := ( '+' | '-' | '!' ) unary | primary
//   primary    := number | name | function '(' choice { ',' choice } ')' | '(' choice ')'
//
// A value is a float, an int or a condition. Conditions come from comparisons of numbers, and only ! && || ?: take
// them. The divisor of ints is a constant above 0, because a division by 0 would end the process of the CPU back-end.
// Every hook that the parser accepts also compiles.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>

#include "generator/base/result.hpp"
#include "generator/spec/hook_tokens.hpp"

namespace kvjit {

constexpr int kMostHookDepth = 64;  // parentheses, signs and choices inside each other

// The expression as C++ in one line. Parsing that line gives the same line. Fails with bad_input at line and column.
Result<std::string> hook_expression(const HookText& hook);

}  // namespace kvjit
