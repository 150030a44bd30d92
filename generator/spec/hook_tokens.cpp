// Splits a hook into tokens as C++ would: each number and symbol is as long as it can be, so that a text never means
// something else to a compiler. Symbols of C++ that hooks lack are tokens too, which are refused by name.
// SPDX-License-Identifier: MIT
#include "generator/spec/hook_tokens.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace kvjit {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Symbols of C++, longest first, and what is said about those that hooks lack (nullptr: hooks have it).
struct Symbol {
  std::string_view text;
  const char* refusal = nullptr;
};
constexpr const char* kAssigns = "a hook assigns nothing; == compares";
constexpr const char* kBits = "hooks have no operators on bits; && and || join conditions";
constexpr const char* kBraces = "a hook has no statements, arrays or lambdas; only ( and ) group";
constexpr const char* kPlaces = "a hook has no members, pointers or namespaces";
constexpr const char* kComment = "a comment begins with // and ends with its line";
constexpr const char* kText = "a hook has no statements, macros or strings";
constexpr const char* kTwoSigns = "a hook changes no name; a - -b subtracts a negative number";
constexpr Symbol kSymbols[] = {{"<<=", kAssigns}, {">>=", kAssigns}, {"<=>", "compare with <, <=, >, >=, == or !="},
                               {"->*", kPlaces},  {"...", kPlaces},  {"<=", nullptr},
                               {">=", nullptr},   {"==", nullptr},   {"!=", nullptr},
                               {"&&", nullptr},   {"||", nullptr},   {"++", kTwoSigns},
                               {"--", kTwoSigns}, {"+=", kAssigns},  {"-=", kAssigns},
                               {"*=", kAssigns},  {"/=", kAssigns},  {"%=", kAssigns},
                               {"&=", kAssigns},  {"|=", kAssigns},  {"^=", kAssigns},
                               {"<<", kBits},     {">>", kBits},     {"<%", kBraces},
                               {"%>", kBraces},   {"<:", kBraces},   {":>", kBraces},
                               {"%:", kText},     {"/*", kComment},  {"*/", kComment},
                               {"->", kPlaces},   {"::", kPlaces},   {".*", kPlaces},
                               {"##", kText},     {"(", nullptr},    {")", nullptr},
                               {"+", nullptr},    {"-", nullptr},    {"*", nullptr},
                               {"/", nullptr},    {"%", nullptr},    {"<", nullptr},
                               {">", nullptr},    {"!", nullptr},    {"?", nullptr},
                               {":", nullptr},    {",", nullptr},    {"=", kAssigns},
                               {"&", kBits},      {"|", kBits},      {"^", kBits},
                               {"~", kBits},      {"[", kBraces},    {"]", kBraces},
                               {"{", kBraces},    {"}", kBraces},    {".", kPlaces},
                               {";", kText},      {"#", kText},      {"\"", kText},
                               {"'", kText},      {"\\", kText},     {"@", kText},
                               {"`", kText},      {"$", kText}};

// Refuses characters that an editor may show as something else, in comments too: what is not ASCII, and control
// characters except tabs and the ends of lines.
Result<void> check_characters(const HookText& hook) {
  for (std::size_t at = 0; at < hook.text.size(); ++at) {
    const auto c = static_cast<unsigned char>(hook.text[at]);
    if ((c >= 0x20 && c < 0x7f) || c == '\t' || c == '\n') continue;
    const bool ends_line = c == '\r' && at + 1 < hook.text.size() && hook.text[at + 1] == '\n';
    if (ends_line) continue;
    return fail(Code::bad_input, fmt::format("the byte 0x{:02x} is no character of a hook", c), hook.where(at),
                {"a hook is ASCII text, its comments too"});
  }
  return {};
}

// The characters of a number as C++ takes them: letters, digits, points, and a sign behind an exponent's letter.
std::size_t number_length(std::string_view text) {
  std::size_t length = 1;
  for (; length < text.size(); ++length) {
    const char c = text[length], before = text[length - 1];
    const bool is_sign = (c == '+' || c == '-') && (before == 'e' || before == 'E');
    if (!is_digit(c) && !begins_word(c) && c != '.' && !is_sign) break;
  }
  return length;
}

// Whether the text is digits, a point and digits, an exponent, f: with a point or an exponent, and no more than one of
// each.
bool is_real(std::string_view text) {
  const auto digits = [&] {
    const std::size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
    text.remove_prefix(end);
    return end;
  };
  std::size_t mantissa = digits();
  const bool has_point = text.starts_with('.');
  if (has_point) text.remove_prefix(1), mantissa += digits();
  const bool has_exponent = text.starts_with('e') || text.starts_with('E');
  if (has_exponent) {
    text.remove_prefix(1);
    if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
    if (digits() == 0) return false;
  }
  if (text.starts_with('f')) text.remove_prefix(1);
  return text.empty() && mantissa > 0 && (has_point || has_exponent);
}

// Fills in kind and value of a number.
Result<void> read_number(HookToken& token, const HookText& hook) {
  const std::string_view text = token.text;
  const auto refuse = [&](const std::string& message, const char* note) {
    return fail(Code::bad_input, message, hook.where(token.at), {note});
  };
  if (text.size() > 1 && text[0] == '0' && (is_digit(text[1]) || begins_word(text[1])) && text[1] != 'e' &&
      text[1] != 'E')
    return refuse(fmt::format("{} is no decimal number", text), "a number is decimal, without leading zeros");
  const bool is_integer = std::all_of(text.begin(), text.end(), is_digit);
  if (!is_integer && !is_real(text))
    return refuse(fmt::format("{} is no number", text), "numbers are integers as 12, and floats as 0.5, 2.f or 1e-3");
  const char* const first = text.data();
  const char* const last = first + text.size();
  if (is_integer) {
    token.kind = HookToken::Kind::integer;
    if (std::from_chars(first, last, token.integer).ec != std::errc{})
      return refuse(fmt::format("{} is no integer of 32 bits", text),
                    "the largest one is 2147483647; a number with a point is a float");
    return {};
  }
  token.kind = HookToken::Kind::real;
  if (std::from_chars(first, last, token.real).ec != std::errc{} || !std::isfinite(token.real))
    return refuse(fmt::format("{} is no float of 32 bits", text), "floats are 0, or from 1.4e-45 to 3.4028235e+38");
  return {};
}

}  // namespace

Where HookText::where(std::size_t at) const {
  const std::string_view before = text.substr(0, at);
  const std::size_t begin = before.rfind('\n') + 1;  // npos + 1 is 0
  const std::size_t end = std::min(text.find_first_of("\r\n", at), text.size());
  const auto lines = std::count(before.begin(), before.end(), '\n');
  return {file, static_cast<int>(lines) + 1, static_cast<int>(at - begin) + 1,
          std::string(text.substr(begin, end - begin))};
}

Result<std::vector<HookToken>> hook_tokens(const HookText& hook) {
  KV_CHECK(check_characters(hook));
  const std::string_view text = hook.text;
  std::vector<HookToken> tokens;
  std::size_t at = 0, end = 0;  // end: behind the last token
  while (at < text.size()) {
    const std::string_view rest = text.substr(at);
    if (is_blank(rest[0])) {
      ++at;
      continue;
    }
    if (rest.starts_with("//")) {
      at += std::min(rest.find('\n'), rest.size());
      continue;
    }
    HookToken token{HookToken::Kind::word, rest.substr(0, 1), at};
    if (is_digit(rest[0]) || (rest[0] == '.' && rest.size() > 1 && is_digit(rest[1]))) {
      token.text = rest.substr(0, number_length(rest));
      KV_CHECK(read_number(token, hook));
    } else if (begins_word(rest[0])) {
      const auto ends = std::find_if(rest.begin(), rest.end(), [](char c) { return !begins_word(c) && !is_digit(c); });
      token.text = rest.substr(0, static_cast<std::size_t>(ends - rest.begin()));
    } else {
      // check_characters left the printable ones, and kSymbols has all of those that begin no number and no word.
      const auto* const symbol = std::find_if(std::begin(kSymbols), std::end(kSymbols),
                                              [&](const Symbol& one) { return rest.starts_with(one.text); });
      token.kind = HookToken::Kind::symbol, token.text = rest.substr(0, symbol->text.size());
      if (symbol->refusal != nullptr)
        return fail(Code::bad_input, fmt::format("'{}' is no part of a hook", token.text), hook.where(at),
                    {symbol->refusal});
    }
    tokens.push_back(token);
    at += token.text.size(), end = at;
  }
  tokens.push_back({HookToken::Kind::end, {}, end});
  return tokens;
}

}  // namespace kvjit
