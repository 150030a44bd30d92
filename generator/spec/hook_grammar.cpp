// A recursive-descent parser. Each rule returns the text, type and precedence of what it parsed, and puts parentheses
// only where the meaning needs them, so printing never nests deeper than the file.
// SPDX-License-Identifier: MIT
#include "generator/spec/hook_grammar.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <optional>

#include "generator/base/schema.hpp"
#include "generator/spec/hook_words.hpp"

namespace kvjit {
namespace {

enum class Type { condition, integer, real };

// How tightly the outermost operator of a text binds.
enum Precedence { kChoice = 1, kOr, kAnd, kEqual, kOrder, kSum, kProduct, kUnary, kPrimary };

struct Value {
  Type type = Type::real;
  int precedence = kPrimary;
  std::string text;
  std::optional<std::int64_t> constant = {};  // of an integer, if it is one
};

struct Operator {
  std::string_view symbol;
  int precedence;
};
constexpr Operator kOperators[] = {{"||", kOr},     {"&&", kAnd},    {"==", kEqual}, {"!=", kEqual}, {"<", kOrder},
                                   {"<=", kOrder},  {">", kOrder},   {">=", kOrder}, {"+", kSum},    {"-", kSum},
                                   {"*", kProduct}, {"/", kProduct}, {"%", kProduct}};

// The shortest digits that give the same float, with a point or an exponent as C++ needs it.
std::string print_real(float value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text + "f";
}

std::string inside(const Value& value, int least_precedence) {
  return value.precedence < least_precedence ? "(" + value.text + ")" : value.text;
}

template <class Words>
std::vector<std::string> names_of(const Words& words) {
  std::vector<std::string> names;
  for (const auto& word : words) names.emplace_back(word.name);
  return names;
}

template <class Words>
const auto* find_word(const Words& words, std::string_view name) {
  for (const auto& word : words)
    if (word.name == name) return &word;
  return static_cast<decltype(&*words.begin())>(nullptr);
}

class Parser {
 public:
  Parser(const HookText& hook, const std::vector<HookToken>& tokens) : hook_(hook), token_(tokens.data()) {}

  Result<Value> whole() {
    if (token_->kind == HookToken::Kind::end)
      return refuse(*token_, "a hook is one expression; there is none", "score - 0.1 * (position - token), for one");
    const HookToken& first = *token_;
    KV_TRY(value, choice(0));
    if (token_->text == ")") return refuse(*token_, "')' closes nothing");
    if (token_->kind != HookToken::Kind::end)
      return refuse(*token_, fmt::format("an operator is missing before '{}'", token_->text),
                    "a hook is one expression, and commas only separate arguments");
    if (value.type == Type::condition)
      return refuse(first, "a hook is a number; this is a condition", "condition ? a : b gives a number");
    return std::move(value);
  }

 private:
  // A token of that text is taken, if it is next.
  bool take(std::string_view symbol) {
    if (token_->text != symbol) return false;
    ++token_;
    return true;
  }
  tl::unexpected<Error> refuse(const HookToken& token, std::string message, std::string note = {}) const {
    std::vector<std::string> notes;
    if (!note.empty()) notes.push_back(std::move(note));
    return fail(Code::bad_input, std::move(message), hook_.where(token.at), std::move(notes));
  }
  Result<void> check_depth(int depth) const {
    if (depth <= kMostHookDepth) return {};
    return refuse(*token_, fmt::format("a hook nests at most {} deep", kMostHookDepth));
  }

  Result<Value> choice(int depth) {
    KV_CHECK(check_depth(depth));
    KV_TRY(condition, binary(kOr, depth));
    const HookToken& mark = *token_;
    if (!take("?")) return std::move(condition);
    if (condition.type != Type::condition)
      return refuse(mark, "'?' follows a condition; this is a number", "write x != 0 ? a : b");
    KV_TRY(yes, choice(depth + 1));
    if (!take(":")) return refuse(*token_, "':' is missing", "condition ? a : b");
    KV_TRY(no, choice(depth + 1));
    if ((yes.type == Type::condition) != (no.type == Type::condition))
      return refuse(mark, "one branch of '?' is a number and one a condition");
    return Value{std::max(yes.type, no.type), kChoice,
                 fmt::format("{} ? {} : {}", inside(condition, kOr), yes.text, no.text)};
  }

  Result<Value> binary(int least_precedence, int depth) {
    KV_TRY(left, unary(depth));
    while (true) {
      const HookToken& mark = *token_;
      const Operator* found = nullptr;
      for (const Operator& one : kOperators)
        if (mark.kind == HookToken::Kind::symbol && one.symbol == mark.text) found = &one;
      if (found == nullptr || found->precedence < least_precedence) return std::move(left);
      ++token_;
      KV_TRY(right, binary(found->precedence + 1, depth));
      KV_CHECK(combine(left, mark, *found, right));
    }
  }

  // left becomes left, operator, right.
  Result<void> combine(Value& left, const HookToken& mark, const Operator& by, const Value& right) const {
    const bool joins = by.precedence == kOr || by.precedence == kAnd;
    if (joins && (left.type != Type::condition || right.type != Type::condition))
      return refuse(mark, fmt::format("'{}' joins conditions; this is a number", by.symbol), "write x != 0");
    if (!joins && (left.type == Type::condition || right.type == Type::condition))
      return refuse(mark, fmt::format("'{}' takes numbers; this is a condition", by.symbol),
                    "condition ? 1 : 0 gives a number, and && joins conditions");
    const bool is_sum = by.precedence == kSum, is_product = by.precedence == kProduct;
    const Type type = is_sum || is_product ? std::max(left.type, right.type) : Type::condition;
    if (by.symbol == "%" && type == Type::real)
      return refuse(mark, "'%' takes integers; this is a float", "fmodf(a, b) is the remainder of floats");
    std::optional<std::int64_t> constant;
    if (type == Type::integer) KV_CHECK(fold(left, mark, right, constant));
    left.text = inside(left, by.precedence);
    left.text += fmt::format(" {} {}", by.symbol, inside(right, by.precedence + 1));
    left.type = type, left.precedence = by.precedence, left.constant = constant;
    return {};
  }

  // The constant that two integers give, if both are constants.
  Result<void> fold(const Value& left, const HookToken& mark, const Value& right,
                    std::optional<std::int64_t>& constant) const {
    const char symbol = mark.text[0];
    const bool divides = symbol == '/' || symbol == '%';
    if (divides && right.constant.value_or(0) <= 0)
      return refuse(mark, fmt::format("an integer is divided by a constant above 0 only ('{}')", mark.text),
                    "float(a) / float(b) divides floats, and fmodf(a, b) is their remainder");
    if (!left.constant || !right.constant) return {};
    const std::int64_t a = *left.constant, b = *right.constant;
    constant = symbol == '+' ? a + b : symbol == '-' ? a - b : symbol == '*' ? a * b : symbol == '/' ? a / b : a % b;
    return check_integer(*constant, mark);
  }

  Result<void> check_integer(std::int64_t value, const HookToken& mark) const {
    if (value == static_cast<int>(value)) return {};
    return refuse(mark, fmt::format("the result {} is no integer of 32 bits", value),
                  "a number with a point is a float");
  }

  Result<Value> unary(int depth) {
    KV_CHECK(check_depth(depth));
    const HookToken& mark = *token_;
    if (mark.text != "+" && mark.text != "-" && mark.text != "!") return primary(depth);
    ++token_;
    KV_TRY(value, unary(depth + 1));
    if (mark.text == "!" && value.type != Type::condition)
      return refuse(mark, "'!' takes a condition; this is a number", "write x == 0");
    if (mark.text != "!" && value.type == Type::condition)
      return refuse(mark, fmt::format("'{}' takes a number; this is a condition", mark.text),
                    "! gives the opposite of a condition");
    if (mark.text == "+") return std::move(value);
    // The blank keeps two signs apart: -- would be a token of its own.
    std::string text = inside(value, kUnary);
    value.text = std::string(mark.text) + (text.starts_with('-') ? " " : "") + text;
    value.precedence = kUnary;
    if (value.constant) KV_CHECK(check_integer(value.constant.emplace(-*value.constant), mark));
    return std::move(value);
  }

  Result<Value> primary(int depth) {
    const HookToken& token = *token_;
    const bool calls = token.kind == HookToken::Kind::word && token_[1].text == "(";
    switch (token.kind) {
      case HookToken::Kind::integer:
        ++token_;
        return Value{Type::integer, kPrimary, std::to_string(token.integer), token.integer};
      case HookToken::Kind::real:
        ++token_;
        return Value{Type::real, kPrimary, print_real(token.real)};
      case HookToken::Kind::word:
        ++token_;
        return calls ? call(token, depth) : name(token);
      case HookToken::Kind::symbol:
        if (take("(")) {
          KV_TRY(value, choice(depth + 1));
          if (!take(")")) return unclosed(token);
          return std::move(value);
        }
        return refuse(token, fmt::format("a number, a name or '(' is missing before '{}'", token.text));
      case HookToken::Kind::end:
        break;
    }
    return refuse(token, "the expression ends here; a number, a name or '(' is missing");
  }

  // The error behind an argument or a parenthesis that does not end.
  tl::unexpected<Error> unclosed(const HookToken& open) const {
    if (token_->kind == HookToken::Kind::end) return refuse(open, fmt::format("'{}' is never closed", open.text));
    if (token_->text == ",") return refuse(*token_, "a comma separates the arguments of a function only");
    return refuse(*token_, fmt::format("an operator or ')' is missing before '{}'", token_->text));
  }

  Result<Value> name(const HookToken& token) const {
    if (const HookName* found = find_word(hook_names(), token.text))
      return Value{found->is_float ? Type::real : Type::integer, kPrimary, std::string(found->name)};
    if (find_word(hook_functions(), token.text) != nullptr)
      return refuse(token, fmt::format("function '{}' needs its arguments: {}(...)", token.text, token.text));
    return fail(Code::bad_input, fmt::format("name '{}' is not known", token.text), hook_.where(token.at),
                schema::suggestions(token.text, "names", names_of(hook_names())));
  }

  Result<Value> call(const HookToken& token, int depth) {
    const HookFunction* found = find_word(hook_functions(), token.text);
    if (found == nullptr && find_word(hook_names(), token.text) != nullptr)
      return refuse(token, fmt::format("'{}' is a name and no function", token.text));
    if (found == nullptr)
      return fail(Code::bad_input, fmt::format("function '{}' is not known", token.text), hook_.where(token.at),
                  schema::suggestions(token.text, "functions", names_of(hook_functions())));
    const HookToken& open = *token_++;
    std::string text = std::string(found->name) + "(";
    int count = 0;
    if (token_->text != ")") do {
        const HookToken& first = *token_;
        KV_TRY(argument, choice(depth + 1));
        if (argument.type == Type::condition)
          return refuse(first, fmt::format("'{}' takes numbers; this is a condition", found->name),
                        "condition ? 1 : 0 gives a number");
        text += (count++ == 0 ? "" : ", ") + argument.text;
      } while (take(","));
    if (!take(")")) return unclosed(open);
    if (count != found->arguments)
      return refuse(token, fmt::format("'{}' takes {} argument{}, not {}", found->name, found->arguments,
                                       found->arguments == 1 ? "" : "s", count));
    return Value{Type::real, kPrimary, text + ")"};
  }

  const HookText& hook_;
  const HookToken* token_;  // the next one; the last one is the end and is never passed
};

}  // namespace

Result<std::string> hook_expression(const HookText& hook) {
  KV_TRY(tokens, hook_tokens(hook));
  KV_TRY(value, Parser(hook, tokens).whole());
  return std::move(value.text);
}

}  // namespace kvjit
