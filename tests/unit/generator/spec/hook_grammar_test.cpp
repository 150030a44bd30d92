// generator/spec/hook_grammar.cpp and hook_tokens.cpp: what is an expression is printed anew, and each text that is
// something else is refused at its line and column.
// SPDX-License-Identifier: MIT
#include "generator/spec/hook_grammar.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fstream>
#include <iterator>

#include "generator/spec/hook.hpp"
#include "generator/spec/hook_words.hpp"
#include "tests/support/registry.hpp"

namespace kvjit {
namespace {

using test::must;

constexpr const char* kFile = "specs/hooks/h.cuh";

Error refusal(std::string_view text) {
  const auto hook = parse_hook(text, kFile);
  if (hook) FAIL("accepted: ", text);
  return hook.error();
}

struct Hostile {
  std::string text;
  int line, column;
  const char* message;  // a part of it
};

void check_refused(const std::vector<Hostile>& all) {
  for (const Hostile& one : all) {
    CAPTURE(one.text);
    const Error error = refusal(one.text);
    CHECK(error.code == Code::bad_input);
    CHECK(fmt::format("{}:{}:{}", error.where.file, error.where.line, error.where.column) ==
          fmt::format("{}:{}:{}", kFile, one.line, one.column));
    CHECK_MESSAGE(error.message.find(one.message) != std::string::npos, error.message);
  }
}

TEST_CASE("hooks that carried code are refused") {
  check_refused({
      {"([&]() -> float <% while (1) <% %> %>(), score)", 1, 2, "'['"},
      {"([&]() <% if (score > 0) <% %> else <% %> %>(), score)", 1, 2, "'['"},
      {"(__builtin_execl((const char*)new long(0x0064692f6e69622f), (char*)0), score)", 1, 40, "0x0064692f6e69622f"},
      {"(__builtin_execl((const char*)new long(12), (char*)0), score)", 1, 2, "'__builtin_execl' is not known"},
      {"*(float*)(8589934592ll) = score", 1, 11, "8589934592ll"},
      {"*(float*)(12) = score", 1, 15, "'='"},
      {"*(float*)(12)", 1, 1, "before '*'"},
      {"score + __LINE__", 1, 9, "'__LINE__' is not known"},
      {"score + __builtin_trap()", 1, 9, "'__builtin_trap' is not known"},
      {"score + new float(1.0)", 1, 9, "'new' is not known"},
      {"delete score", 1, 1, "'delete' is not known"},
      {"goto x", 1, 1, "'goto' is not known"},
      {"score +", 1, 8, "ends here"},
      {"score + // more\n// to come\n", 1, 8, "ends here"},
      {"(score = 0.0)", 1, 8, "'='"},
      {"score += 1", 1, 7, "'+='"},
      {"score -= 1", 1, 7, "'-='"},
      {"score *= 2", 1, 7, "'*='"},
      {"score /= 2", 1, 7, "'/='"},
      {"token %= 2", 1, 7, "'%='"},
      {"token <<= 2", 1, 7, "'<<='"},
      {"token >>= 2", 1, 7, "'>>='"},
      {"token &= 2", 1, 7, "'&='"},
      {"token |= 2", 1, 7, "'|='"},
      {"token ^= 2", 1, 7, "'^='"},
      {"++score", 1, 1, "'++'"},
      {"score--", 1, 6, "'--'"},
      {"score--1", 1, 6, "'--'"},
      {"token << 2", 1, 7, "'<<'"},
      {"token >> 2", 1, 7, "'>>'"},
      {"token & 1", 1, 7, "'&'"},
      {"token | 1", 1, 7, "'|'"},
      {"token ^ 1", 1, 7, "'^'"},
      {"~token", 1, 1, "'~'"},
      {"&score", 1, 1, "'&'"},
      {"&&score", 1, 1, "before '&&'"},
      {"score <=> 1", 1, 7, "'<=>'"},
      {"score; return 1", 1, 6, "';'"},
      {"return score", 1, 1, "'return' is not known"},
      {"throw 1", 1, 1, "'throw' is not known"},
      {"{score}", 1, 1, "'{'"},
      {"score }", 1, 7, "'}'"},
      {"<% score %>", 1, 1, "'<%'"},
      {"score %>", 1, 7, "'%>'"},
      {"score<:0:>", 1, 6, "'<:'"},
      {"token :> 1", 1, 7, "':>'"},
      {"%:define f(x) x", 1, 1, "'%:'"},
      {"#define score 1", 1, 1, "'#'"},
      {"score ## 1", 1, 7, "'##'"},
      {"score\n#include \"/etc/passwd\"", 2, 1, "'#'"},
      {"score[0]", 1, 6, "'['"},
      {"score.x", 1, 6, "'.'"},
      {"score->x", 1, 6, "'->'"},
      {"score->*x", 1, 6, "'->*'"},
      {"score.*x", 1, 6, "'.*'"},
      {"score...", 1, 6, "'...'"},
      {"::system(0)", 1, 1, "'::'"},
      {"kv::block_x()", 1, 3, "'::'"},
      {"\"text\"", 1, 1, "'\"'"},
      {"'a'", 1, 1, "'''"},
      {"R\"(text)\"", 1, 2, "'\"'"},
      {"score \\\n+ 1", 1, 7, "'\\'"},
      {"\\u0073core", 1, 1, "'\\'"},
      {"score @ 1", 1, 7, "'@'"},
      {"score + `ls`", 1, 9, "'`'"},
      {"score + $x", 1, 9, "'$'"},
      {"score \?\?= 1", 1, 9, "'='"},
      {"\?\?(score\?\?)", 1, 1, "before '?'"},
      {"\?\?<score\?\?>", 1, 1, "before '?'"},
      {"score \?\?/\n+ 1", 1, 7, "this is a number"},
  });
}

TEST_CASE("words of C++, casts and calls are refused") {
  check_refused({
      {"sizeof(score)", 1, 1, "function 'sizeof' is not known"},
      {"sizeof score", 1, 1, "name 'sizeof' is not known"},
      {"(float)score", 1, 2, "'float' needs its arguments"},
      {"(float*)score", 1, 2, "'float' needs its arguments"},
      {"(int)score", 1, 2, "name 'int' is not known"},
      {"int(score)", 1, 1, "function 'int' is not known"},
      {"double(score)", 1, 1, "function 'double' is not known"},
      {"static_cast<int>(score)", 1, 1, "name 'static_cast' is not known"},
      {"reinterpret_cast<float*>(8)", 1, 1, "name 'reinterpret_cast'"},
      {"float score", 1, 1, "'float' needs its arguments"},
      {"score(1)", 1, 1, "'score' is a name and no function"},
      {"score score", 1, 7, "operator is missing before 'score'"},
      {"expf", 1, 1, "'expf' needs its arguments"},
      {"expf score", 1, 1, "'expf' needs its arguments"},
      {"expf()", 1, 1, "'expf' takes 1 argument, not 0"},
      {"expf(score, 1)", 1, 1, "'expf' takes 1 argument, not 2"},
      {"fminf(score)", 1, 1, "'fminf' takes 2 arguments, not 1"},
      {"1 + fmaf(score, 1)", 1, 5, "'fmaf' takes 3 arguments, not 2"},
      {"float(score, 1)", 1, 1, "'float' takes 1 argument, not 2"},
      {"expf(,)", 1, 6, "before ','"},
      {"fminf(score,)", 1, 13, "before ')'"},
      {"expf(score > 0)", 1, 6, "takes numbers"},
      {"expf(score", 1, 5, "'(' is never closed"},
      {"expf(score 1)", 1, 12, "before '1'"},
      {"system(0)", 1, 1, "function 'system' is not known"},
      {"h(score)", 1, 1, "function 'h' is not known"},
      {"of(score, token, position, query, head, length, sequence)", 1, 1, "function 'of' is not known"},
      {"asm(1)", 1, 1, "function 'asm' is not known"},
      {"printf(1)", 1, 1, "function 'printf' is not known"},
      {"SCORE", 1, 1, "name 'SCORE' is not known"},
      {"_", 1, 1, "name '_' is not known"},
      {"this", 1, 1, "name 'this' is not known"},
      {"true", 1, 1, "name 'true' is not known"},
      {"not score", 1, 1, "name 'not' is not known"},
      {"score and token", 1, 7, "before 'and'"},
      {"lambda", 1, 1, "name 'lambda' is not known"},
  });
}

TEST_CASE("numbers that surprise are refused") {
  check_refused({
      {"0x10", 1, 1, "0x10 is no decimal number"},
      {"0x", 1, 1, "0x is no decimal number"},
      {"0x1p3", 1, 1, "0x1p3 is no decimal number"},
      {"0b1", 1, 1, "0b1 is no decimal number"},
      {"010", 1, 1, "010 is no decimal number"},
      {"00", 1, 1, "00 is no decimal number"},
      {"00.5", 1, 1, "00.5 is no decimal number"},
      {"1..2", 1, 1, "1..2 is no number"},
      {"1.2.3", 1, 1, "1.2.3 is no number"},
      {"score + 1_km", 1, 9, "1_km is no number"},
      {"1.0_km", 1, 1, "1.0_km is no number"},
      {"1f", 1, 1, "1f is no number"},
      {"1u", 1, 1, "1u is no number"},
      {"1ll", 1, 1, "1ll is no number"},
      {"1.0l", 1, 1, "1.0l is no number"},
      {"1.0ff", 1, 1, "1.0ff is no number"},
      {"1e", 1, 1, "1e is no number"},
      {"1e+", 1, 1, "1e+ is no number"},
      {"1e+score", 1, 1, "1e+score is no number"},
      {"1.e5e5", 1, 1, "1.e5e5 is no number"},
      {"1'000", 1, 2, "'''"},
      {"1e999", 1, 1, "1e999 is no float"},
      {"-1e39", 1, 2, "1e39 is no float"},
      {"1e-999", 1, 1, "1e-999 is no float"},
      {"2147483648", 1, 1, "2147483648 is no integer"},
      {"99999999999999999999999", 1, 1, "is no integer"},
      {"2147483647 + 1", 1, 12, "2147483648 is no integer"},
      {"-(-2147483647 - 1)", 1, 1, "2147483648 is no integer"},
      {"65536 * 65536", 1, 7, "4294967296 is no integer"},
      {".", 1, 1, "'.'"},
      {".e5", 1, 1, "'.'"},
      {"1 . 5", 1, 3, "'.'"},
      {"1 2", 1, 3, "before '2'"},
  });
}

TEST_CASE("numbers, conditions and divisors are checked") {
  check_refused({
      {"token / 0", 1, 7, "constant above 0"},
      {"token % 0", 1, 7, "constant above 0"},
      {"token / (2 - 2)", 1, 7, "constant above 0"},
      {"token / -1", 1, 7, "constant above 0"},
      {"token / head", 1, 7, "constant above 0"},
      {"token % (length * 2)", 1, 7, "constant above 0"},
      {"score % 2", 1, 7, "'%' takes integers"},
      {"token % 2.0", 1, 7, "'%' takes integers"},
      {"score > 0", 1, 1, "this is a condition"},
      {"!score", 1, 1, "'!' takes a condition"},
      {"!token ? 1 : 0", 1, 1, "'!' takes a condition"},
      {"-(score > 0)", 1, 1, "'-' takes a number"},
      {"+(score > 0)", 1, 1, "'+' takes a number"},
      {"score ? 1 : 0", 1, 7, "follows a condition"},
      {"token && head ? 1 : 0", 1, 7, "joins conditions"},
      {"score > 0 && token ? 1 : 0", 1, 11, "joins conditions"},
      {"score > 0 || 1 ? 1 : 0", 1, 11, "joins conditions"},
      {"(score > 0) * 2", 1, 13, "takes numbers"},
      {"0 < token < 9 ? 1 : 0", 1, 11, "takes numbers"},
      {"score > 0 ? 1 : score > 1", 1, 11, "one branch"},
      {"score > 0 ? 1", 1, 14, "':' is missing"},
      {"score > 0 ? : 1", 1, 13, "before ':'"},
      {"score : 1", 1, 7, "before ':'"},
  });
}

TEST_CASE("texts that do not end, or hide something, are refused") {
  check_refused({
      {"", 1, 1, "there is none"},
      {"// nothing\n", 1, 1, "there is none"},
      {" \n\t\n", 1, 1, "there is none"},
      {"()", 1, 2, "before ')'"},
      {"(score", 1, 1, "'(' is never closed"},
      {"((score)", 1, 1, "'(' is never closed"},
      {"score)", 1, 6, "')' closes nothing"},
      {")score(", 1, 1, "before ')'"},
      {"score, token", 1, 6, "operator is missing before ','"},
      {"(score, token)", 1, 7, "arguments of a function only"},
      {",", 1, 1, "before ','"},
      {"* score", 1, 1, "before '*'"},
      {"score * / 2", 1, 9, "before '/'"},
      {"score /* hidden */", 1, 7, "'/*'"},
      {"*/ score", 1, 1, "'*/'"},
      {"score\n + 1; return 2", 2, 5, "';'"},
      {std::string("sco\0re", 6), 1, 4, "0x00"},
      {std::string("score // \0 + 1", 14), 1, 10, "0x00"},
      {"// comment\rscore\n1.0", 1, 11, "0x0d"},
      {"score\r", 1, 6, "0x0d"},
      {"score\v+ 1", 1, 6, "0x0b"},
      {"score\f+ 1", 1, 6, "0x0c"},
      {"score // \x1b[2J", 1, 10, "0x1b"},
      {"score // \x7f", 1, 10, "0x7f"},
      {"\xef\xbb\xbfscore", 1, 1, "0xef"},
      {"s\xd1\x81ore", 1, 2, "0xd1"},
      {"score \xe2\x88\x92 1", 1, 7, "0xe2"},
      {"score\xc2\xa0+ 1", 1, 6, "0xc2"},
      {"score + \xef\xbc\x91", 1, 9, "0xef"},
      {"score // \xe2\x80\xae desrever", 1, 10, "0xe2"},
      {"score\n// \xff", 2, 4, "0xff"},
      {std::string(1'000'000, '('), 1, 4097, "1000000 characters"},
      {std::string(10 << 20, '1'), 1, 4097, "at most 4096"},
      {std::string(5000, '\n'), 4097, 1, "at most 4096"},
  });
}

TEST_CASE("nesting is bounded, and what is printed does not nest deeper") {
  const auto nested = [](const std::string& open, int times, const std::string& close) {
    std::string text = "score";
    for (int i = 0; i < times; ++i) text = open + text + close;
    return text;
  };
  const HookText at_all{"", kFile};
  for (const auto& [open, close] : std::vector<std::pair<std::string, std::string>>{
           {"(", ")"}, {"-", ""}, {"expf(", ")"}, {"score > 0 ? ", " : 1"}, {"score > 0 ? 1 : ", ""}}) {
    CAPTURE(open);
    const std::string fits = must(hook_expression({nested(open == "-" ? "- " : open, kMostHookDepth, close), kFile}));
    CHECK(must(hook_expression({fits, kFile})) == fits);
    for (const int times : {kMostHookDepth + 1, 1'000'000}) {
      std::string text;
      for (int i = 0; i < times; ++i) text += open + " ";
      const auto refused = hook_expression({text, kFile});
      REQUIRE_FALSE(refused);
      CHECK(refused.error().message == "a hook nests at most 64 deep");
      CHECK(refused.error().where.column > kMostHookDepth);
    }
  }
  // Operators beside each other are no nesting.
  std::string sum = "1.";
  while (sum.size() < kMostHookText - 4) sum += "+1.";
  CHECK(must(parse_hook(sum, kFile)).expression.starts_with("1.0f + 1.0f + "));
}

TEST_CASE("accepted hooks are printed from their parse, and parse to themselves") {
  const std::vector<std::pair<const char*, const char*>> all = {
      {"score", "score"},
      {"  score\t// as it is\r\n", "score"},
      {"(((score)))", "score"},
      {"score - 0.25f * log1pf(fabsf(float(position - token)))",
       "score - 0.25f * log1pf(fabsf(float(position - token)))"},
      {"score*2.", "score * 2.0f"},
      {".5*score", "0.5f * score"},
      {"1e3", "1000.0f"},
      {"1E-3f", "0.001f"},
      {"0e5", "0.0f"},
      {"3.4028235e38", "3.4028235e+38f"},
      {"1.4e-45", "1e-45f"},
      {"16777217.0", "16777216.0f"},
      {"0", "0"},
      {"2147483647", "2147483647"},
      {"-2147483647 - 1", "-2147483647 - 1"},
      {"+score", "score"},
      {"- -score", "- -score"},
      {"-(-score)", "- -score"},
      {"-+-score", "- -score"},
      {"score - -1", "score - -1"},
      {"score-(-1)", "score - -1"},
      {"1 - (2 - token)", "1 - (2 - token)"},
      {"(1 - 2) - token", "1 - 2 - token"},
      {"score * (1 + 2)", "score * (1 + 2)"},
      {"(score * 1) + 2", "score * 1 + 2"},
      {"-(score + 1)", "-(score + 1)"},
      {"token % 4 * 3", "token % 4 * 3"},
      {"token / (2 * 2)", "token / (2 * 2)"},
      {"1/2", "1 / 2"},
      {"score / 0", "score / 0"},
      {"token > 3 ? score : -1e9", "token > 3 ? score : -1000000000.0f"},
      {"(token > 3) ? (score) : (1)", "token > 3 ? score : 1"},
      {"token>3?token>4?1:2:3", "token > 3 ? token > 4 ? 1 : 2 : 3"},
      {"(token>3?token>4:token>5)?1:2", "(token > 3 ? token > 4 : token > 5) ? 1 : 2"},
      {"2 * (token == head ? 1 : 0)", "2 * (token == head ? 1 : 0)"},
      {"!(token != 1) && !!(head < 2) || query >= 3 ? 1 : 0", "!(token != 1) && !!(head < 2) || query >= 3 ? 1 : 0"},
      {"(token < 1 || head < 1) && score <= 2 ? 1 : 0", "(token < 1 || head < 1) && score <= 2 ? 1 : 0"},
      {"fmaf ( score , 2 , token )", "fmaf(score, 2, token)"},
      {"fminf(token > 1 ? 1 : 2, (score))", "fminf(token > 1 ? 1 : 2, score)"},
      {"score // 1 \\\n+ 2", "score + 2"},
      {"score\n// + 1\n\r\n/2", "score / 2"},
  };
  for (const auto& [text, expected] : all) {
    CAPTURE(text);
    CHECK(must(parse_hook(text, kFile)).expression == expected);
    CHECK(must(parse_hook(expected, kFile)).expression == expected);
  }
}

TEST_CASE("a refusal shows the line, the place, and what is possible") {
  CHECK(render(refusal("// c\nscore\n  + scor\n")) ==
        "specs/hooks/h.cuh:3:5: error: name 'scor' is not known\n  + scor\n    ^\n  note: did you mean 'score'?\n"
        "  note: names: score, token, position, query, head, length, sequence\n");
  CHECK(refusal("exp(score)").notes.at(0) == "did you mean 'expf'?");
  CHECK(refusal("abs(score)").notes.at(0) == "did you mean 'fabsf'?");
  for (const HookFunction& function : hook_functions())
    CHECK(refusal("f(1)").notes.back().find(function.name) != std::string::npos);
}

TEST_CASE("the document lists the names and functions") {
  std::ifstream file(KVJIT_SOURCE_DIR "/specs/docs/features.md");
  const std::string document{std::istreambuf_iterator<char>(file), {}};
  const std::size_t from = document.find("## Hooks"), end = document.find("\n## ", from);
  REQUIRE(end != std::string::npos);
  const std::string section = document.substr(from, end - from);
  for (const HookName& name : hook_names()) CHECK(section.find(fmt::format("`{}`", name.name)) != std::string::npos);
  for (const HookFunction& one : hook_functions())
    CHECK(section.find(fmt::format("`{}`", one.name)) != std::string::npos);
}

}  // namespace
}  // namespace kvjit
