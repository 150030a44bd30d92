// Hooks on the CPU back-end: the value of the printed expression is that of an evaluator of this file, which shares no
// code with the reader. Each function is called, and random expressions are written with parentheses and blanks that
// the reader leaves out.
// SPDX-License-Identifier: MIT
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <random>
#include <set>

#include "generator/spec/hook_words.hpp"
#include "runtime/compile/compiler.hpp"
#include "tests/support/hook_kernel.hpp"

namespace kvjit::test {
namespace {

class Random {
 public:
  explicit Random(unsigned seed) : bits_(seed) {}
  int below(int end) { return static_cast<int>(bits_() % static_cast<unsigned>(end)); }

 private:
  std::mt19937 bits_;
};

std::vector<HookPlace> random_places(int count) {
  Random random(11);
  std::vector<HookPlace> places;
  for (int i = 0; i < count; ++i)
    places.push_back({static_cast<float>(random.below(200'001) - 100'000) / 3777.f, random.below(1000),
                      random.below(1000) - 20, random.below(64), random.below(64), random.below(5000),
                      random.below(8)});
  return places;
}

// The values of hooks at places, [hook][place], by the host compiler.
std::vector<std::vector<float>> values_of(const std::vector<std::string>& texts, const std::vector<HookPlace>& places) {
  const auto compiler = must(open_host_compiler(Options::from_environment()));
  const Artefact artefact = must(compiler->compile(hook_kernel(texts, "sm_90a")));
  const int file = memfd_create("hooks", MFD_CLOEXEC);
  REQUIRE(write(file, artefact.bytes.data(), artefact.bytes.size()) == static_cast<ssize_t>(artefact.bytes.size()));
  void* const object = dlopen(fmt::format("/proc/self/fd/{}", file).c_str(), RTLD_NOW | RTLD_LOCAL);
  REQUIRE_MESSAGE(object != nullptr, dlerror());
  const auto entry = reinterpret_cast<void (*)(const void*)>(dlsym(object, "kv_hooks_on_host"));
  REQUIRE((entry != nullptr));
  std::vector<float> values(texts.size() * places.size(), -12345.f);
  const HookArgs args{places.data(), values.data(), static_cast<int>(places.size())};
  entry(&args);  // the file stays open: the loader would take another object of its number for this one
  std::vector<std::vector<float>> rows;
  for (std::size_t n = 0; n < texts.size(); ++n) {
    const auto from = values.begin() + static_cast<std::ptrdiff_t>(n * places.size());
    rows.emplace_back(from, from + static_cast<std::ptrdiff_t>(places.size()));
  }
  return rows;
}

bool agree(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// An expression with its value at every place.
struct Expression {
  enum class Type { condition, integer, real } type = Type::real;
  int binds = 9;  // 1: a choice ... 9: needs no parentheses
  std::string text;
  std::vector<float> reals;
  std::vector<long long> integers;  // of an integer, or of a condition as 0 and 1
  bool is_defined = true;           // no integer left 32 bits

  float real(std::size_t i) const { return type == Type::real ? reals[i] : static_cast<float>(integers[i]); }
};

class Writer {
 public:
  explicit Writer(const std::vector<HookPlace>& places) : places_(places), random_(23) {}

  Expression number(int depth) {
    while (true)
      if (Expression one = try_number(depth); one.is_defined) return one;
  }

 private:
  using Type = Expression::Type;

  std::string blank() { return std::vector<std::string>{"", "", " ", "  ", "\n", " // x\n", "\t"}.at(at(7)); }
  std::size_t at(int end) { return static_cast<std::size_t>(random_.below(end)); }
  // The text as an operand, with parentheses if it needs them, or by chance.
  std::string operand(const Expression& one, int least) {
    const bool wraps = one.binds < least || random_.below(4) == 0;
    return blank() + (wraps ? "(" + blank() + one.text + ")" : one.text) + blank();
  }
  template <class Value>
  Expression each(Type type, int binds, std::string text, const Value& value) {
    Expression one{type, binds, std::move(text), {}, {}, true};
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (type == Type::real)
        one.reals.push_back(static_cast<float>(value(i)));
      else
        one.integers.push_back(static_cast<long long>(value(i)));
    }
    if (type == Type::integer)
      for (const long long v : one.integers) one.is_defined &= v == static_cast<int>(v);
    return one;
  }

  Expression leaf() {
    switch (random_.below(8)) {
      case 0: {
        const int v = random_.below(40);
        return each(Type::integer, 9, std::to_string(v), [&](std::size_t) { return v; });
      }
      case 1: {
        const int v = random_.below(64);  // eighths are exact, whatever the suffix
        const std::string text = fmt::format("{:.3f}{}", v / 8., random_.below(2) == 0 ? "f" : "");
        return each(Type::real, 9, text, [&](std::size_t) { return static_cast<float>(v) / 8.f; });
      }
      case 2:
        return each(Type::integer, 9, "token", [&](std::size_t i) { return places_[i].token; });
      case 3:
        return each(Type::integer, 9, "position", [&](std::size_t i) { return places_[i].position; });
      case 4:
        return each(Type::integer, 9, "head", [&](std::size_t i) { return places_[i].head; });
      case 5:
        return each(Type::integer, 9, "length", [&](std::size_t i) { return places_[i].length; });
      default:
        return each(Type::real, 9, "score", [&](std::size_t i) { return places_[i].score; });
    }
  }

  Expression try_number(int depth) {
    if (depth == 0) return leaf();
    switch (random_.below(9)) {
      case 0: {
        const Expression a = number(depth - 1);
        const std::string text = "-" + (a.text.starts_with('-') ? " " + a.text : operand(a, 8));
        if (a.binds < 8 && a.text.starts_with('-')) return a;
        return each(a.type, 8, text,
                    [&](std::size_t i) { return a.type == Type::real ? double(-a.reals[i]) : double(-a.integers[i]); });
      }
      case 1: {
        const Expression c = condition(depth - 1), a = number(depth - 1), b = number(depth - 1);
        const Type type = a.type == Type::integer && b.type == Type::integer ? Type::integer : Type::real;
        return each(type, 1, operand(c, 2) + "?" + operand(a, 1) + ":" + operand(b, 1), [&](std::size_t i) {
          const Expression& one = c.integers[i] != 0 ? a : b;
          return type == Type::real ? double(one.real(i)) : double(one.integers[i]);
        });
      }
      case 2: {  // divided by a constant
        const Expression a = number(depth - 1);
        if (a.type == Type::real) return a;
        const int by = 1 + random_.below(9);
        const bool is_rest = random_.below(2) == 0;
        return each(Type::integer, 7, operand(a, 7) + (is_rest ? "%" : "/") + std::to_string(by),
                    [&](std::size_t i) { return is_rest ? a.integers[i] % by : a.integers[i] / by; });
      }
      case 3:
        return function(depth);
      default:
        return arithmetic(depth);
    }
  }

  Expression arithmetic(int depth) {
    const Expression a = number(depth - 1), b = number(depth - 1);
    const Type type = a.type == Type::integer && b.type == Type::integer ? Type::integer : Type::real;
    const char symbol = "+-*/"[random_.below(type == Type::integer ? 3 : 4)];
    const int binds = symbol == '+' || symbol == '-' ? 6 : 7;
    std::string right = operand(b, binds + 1);
    if (right[0] == symbol || (symbol == '/' && right[0] == '/')) right = " " + right;
    return each(type, binds, operand(a, binds) + symbol + right, [&](std::size_t i) -> double {
      if (type == Type::integer) {
        const long long x = a.integers[i], y = b.integers[i];
        return double(symbol == '+' ? x + y : symbol == '-' ? x - y : x * y);
      }
      const float x = a.real(i), y = b.real(i);
      const float value = symbol == '+' ? x + y : symbol == '-' ? x - y : symbol == '*' ? x * y : x / y;
      return value;
    });
  }

  // Functions whose results are exact, so that a compiler's constants agree with the library.
  Expression function(int depth) {
    const Expression a = number(depth - 1), b = number(depth - 1), c = number(depth - 1);
    const auto one = [&](const char* name, float (*f)(float)) {
      return each(Type::real, 9, fmt::format("{}({})", name, operand(a, 1)),
                  [&](std::size_t i) { return f(a.real(i)); });
    };
    const auto two = [&](const char* name, float (*f)(float, float)) {
      return each(Type::real, 9, fmt::format("{}{}({},{})", name, blank(), operand(a, 1), operand(b, 1)),
                  [&](std::size_t i) { return f(a.real(i), b.real(i)); });
    };
    switch (random_.below(8)) {
      case 0:
        return one("fabsf", [](float x) { return std::fabs(x); });
      case 1:
        return one("floorf", [](float x) { return std::floor(x); });
      case 2:
        return one("ceilf", [](float x) { return std::ceil(x); });
      case 3:
        return one("float", [](float x) { return x; });
      case 4:
        return two("fminf", [](float x, float y) { return std::fmin(x, y); });
      case 5:
        return two("fmaxf", [](float x, float y) { return std::fmax(x, y); });
      case 6:
        return two("fmodf", [](float x, float y) { return std::fmod(x, y); });
      default:
        return each(Type::real, 9, fmt::format("fmaf({},{},{})", operand(a, 1), operand(b, 1), operand(c, 1)),
                    [&](std::size_t i) { return std::fma(a.real(i), b.real(i), c.real(i)); });
    }
  }

  Expression condition(int depth) {
    if (depth > 0 && random_.below(3) == 0) {
      const Expression a = condition(depth - 1), b = condition(depth - 1);
      switch (random_.below(3)) {
        case 0:
          return each(Type::condition, 8, "!" + operand(a, 8), [&](std::size_t i) { return a.integers[i] == 0; });
        case 1:
          return each(Type::condition, 3, operand(a, 3) + "&&" + operand(b, 4),
                      [&](std::size_t i) { return a.integers[i] != 0 && b.integers[i] != 0; });
        default:
          return each(Type::condition, 2, operand(a, 2) + "||" + operand(b, 3),
                      [&](std::size_t i) { return a.integers[i] != 0 || b.integers[i] != 0; });
      }
    }
    const Expression a = number(std::max(0, depth - 1)), b = number(std::max(0, depth - 1));
    const int kind = random_.below(6);
    const int binds = kind < 2 ? 4 : 5;
    const char* const symbol = std::vector{"==", "!=", "<", "<=", ">", ">="}.at(static_cast<std::size_t>(kind));
    return each(Type::condition, binds, operand(a, binds + 1) + symbol + operand(b, binds + 1), [&](std::size_t i) {
      const bool is_integer = a.type == Type::integer && b.type == Type::integer;
      const double x = is_integer ? double(a.integers[i]) : a.real(i),
                   y = is_integer ? double(b.integers[i]) : b.real(i);
      return kind == 0   ? x == y
             : kind == 1 ? x != y
             : kind == 2 ? x < y
             : kind == 3 ? x <= y
             : kind == 4 ? x > y
                         : x >= y;
    });
  }

  const std::vector<HookPlace>& places_;
  Random random_;
};

TEST_CASE("random hooks: the CPU back-end computes what an independent evaluator computes") {
  constexpr std::size_t kHooks = 300;
  const std::vector<HookPlace> places = random_places(64);
  Writer writer(places);
  std::vector<Expression> all;
  std::vector<std::string> texts;
  while (all.size() < kHooks) {
    Expression one = writer.number(1 + static_cast<int>(all.size() % 5));
    if (one.text.size() > kMostHookText) continue;
    texts.push_back(one.text);
    all.push_back(std::move(one));
  }
  const auto values = values_of(texts, places);
  int finite = 0, distinct = 0;
  for (std::size_t n = 0; n < kHooks; ++n) {
    CAPTURE(texts[n]);
    for (std::size_t i = 0; i < places.size(); ++i) {
      finite += std::isfinite(values[n][i]);
      CHECK_MESSAGE(agree(values[n][i], all[n].real(i)), values[n][i], " and not ", all[n].real(i));
    }
    distinct += std::set<float>(values[n].begin(), values[n].end()).size() > 8;
  }
  CHECK(finite > static_cast<int>(kHooks * places.size() * 8 / 10));
  CHECK(distinct > static_cast<int>(kHooks / 2));
}

TEST_CASE("every function of hooks is the function of its name") {
  struct Function {
    const char* text;
    float (*value)(float score, float other);
  };
  // score and float(position) are the arguments, so that no compiler computes a constant.
  const std::vector<Function> functions = {
      {"float(score)", [](float x, float) { return x; }},
      {"fabsf(score)", [](float x, float) { return std::fabs(x); }},
      {"floorf(score)", [](float x, float) { return std::floor(x); }},
      {"ceilf(score)", [](float x, float) { return std::ceil(x); }},
      {"truncf(score)", [](float x, float) { return std::trunc(x); }},
      {"rintf(score)", [](float x, float) { return std::rint(x); }},
      {"sqrtf(score)", [](float x, float) { return std::sqrt(x); }},
      {"rsqrtf(score)", [](float x, float) { return 1.f / std::sqrt(x); }},
      {"cbrtf(score)", [](float x, float) { return std::cbrt(x); }},
      {"expf(score)", [](float x, float) { return std::exp(x); }},
      {"exp2f(score)", [](float x, float) { return std::exp2(x); }},
      {"expm1f(score)", [](float x, float) { return std::expm1(x); }},
      {"logf(score)", [](float x, float) { return std::log(x); }},
      {"log2f(score)", [](float x, float) { return std::log2(x); }},
      {"log10f(score)", [](float x, float) { return std::log10(x); }},
      {"log1pf(score)", [](float x, float) { return std::log1p(x); }},
      {"sinf(score)", [](float x, float) { return std::sin(x); }},
      {"cosf(score)", [](float x, float) { return std::cos(x); }},
      {"tanf(score)", [](float x, float) { return std::tan(x); }},
      {"asinf(score)", [](float x, float) { return std::asin(x); }},
      {"acosf(score)", [](float x, float) { return std::acos(x); }},
      {"atanf(score)", [](float x, float) { return std::atan(x); }},
      {"sinhf(score)", [](float x, float) { return std::sinh(x); }},
      {"coshf(score)", [](float x, float) { return std::cosh(x); }},
      {"tanhf(score)", [](float x, float) { return std::tanh(x); }},
      {"erff(score)", [](float x, float) { return std::erf(x); }},
      {"erfcf(score)", [](float x, float) { return std::erfc(x); }},
      {"fminf(score, position)", [](float x, float y) { return std::fmin(x, y); }},
      {"fmaxf(score, position)", [](float x, float y) { return std::fmax(x, y); }},
      {"powf(score, position)", [](float x, float y) { return std::pow(x, y); }},
      {"fmodf(score, position)", [](float x, float y) { return std::fmod(x, y); }},
      {"atan2f(score, position)", [](float x, float y) { return std::atan2(x, y); }},
      {"fmaf(score, position, score)", [](float x, float y) { return std::fma(x, y, x); }}};
  std::vector<HookPlace> places = random_places(500);
  for (std::size_t i = 0; i < places.size(); i += 2) places[i].score /= 30;  // into the domains of acosf and asinf
  std::vector<std::string> texts;
  std::set<std::string> tested;
  for (const Function& one : functions) {
    texts.emplace_back(one.text);
    tested.insert(texts.back().substr(0, texts.back().find('(')));
  }
  for (const HookFunction& one : hook_functions()) CHECK_MESSAGE(tested.count(std::string(one.name)) == 1, one.name);
  CHECK(tested.size() == hook_functions().size());
  const auto values = values_of(texts, places);
  for (std::size_t n = 0; n < texts.size(); ++n) {
    CAPTURE(texts[n]);
    for (std::size_t i = 0; i < places.size(); ++i) {
      const float expected = functions[n].value(places[i].score, static_cast<float>(places[i].position));
      CHECK_MESSAGE(agree(values[n][i], expected), places[i].score, ": ", values[n][i], " and not ", expected);
    }
  }
}

}  // namespace
}  // namespace kvjit::test
