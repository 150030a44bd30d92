// The tables of a hook's words. HookExpression (emit/writer.cpp) has the names as its parameters.
// SPDX-License-Identifier: MIT
#include "generator/spec/hook_words.hpp"

namespace kvjit {
namespace {

constexpr HookName kNames[] = {{"score", true}, {"token", false},  {"position", false}, {"query", false},
                               {"head", false}, {"length", false}, {"sequence", false}};
constexpr HookFunction kFunctions[] = {
    {"float", 1},  {"fabsf", 1},  {"floorf", 1}, {"ceilf", 1},  {"truncf", 1}, {"rintf", 1}, {"sqrtf", 1},
    {"rsqrtf", 1}, {"cbrtf", 1},  {"expf", 1},   {"exp2f", 1},  {"expm1f", 1}, {"logf", 1},  {"log2f", 1},
    {"log10f", 1}, {"log1pf", 1}, {"sinf", 1},   {"cosf", 1},   {"tanf", 1},   {"asinf", 1}, {"acosf", 1},
    {"atanf", 1},  {"sinhf", 1},  {"coshf", 1},  {"tanhf", 1},  {"erff", 1},   {"erfcf", 1}, {"fminf", 2},
    {"fmaxf", 2},  {"powf", 2},   {"fmodf", 2},  {"atan2f", 2}, {"fmaf", 3}};

}  // namespace

std::span<const HookName> hook_names() { return kNames; }
std::span<const HookFunction> hook_functions() { return kFunctions; }

}  // namespace kvjit
