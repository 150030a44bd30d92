// Every second format of specs/formats with itself through NVRTC, for the measured kind of GPU: decode, and a third of
// the codec kernels in turn. Every fourth format is compiled for the oldest or the newest kind too. KVJIT_FULL=1
// compiles all kernels of all formats for all three, and every combination of K and V formats. Each kernel must compile
// without spills and without a stack frame. Needs no GPU.
// SPDX-License-Identifier: MIT
#include <array>
#include <cstdlib>

#include "tests/compile/kernels.hpp"
#include "tests/support/every_format.hpp"

namespace kvjit::test {
namespace {

ProgramSource program_of(const std::string& k, const std::string& v, int head_dim, int head_dim_v, int gqa,
                         const char* layout, const std::string& arch) {
  const std::string toml = fmt::format(
      "k = {{ format = \"{}\" }}\nv = {{ format = \"{}\" }}\nattention = {{ head_dim = {}, head_dim_v = {}, "
      "q_heads_per_kv = {} }}\ncache = {{ layout = \"{}\" }}\n",
      k, v, head_dim, head_dim_v, gqa, layout);
  const Spec spec = must(parse_specs(toml, k + " and " + v)).front();
  return must(make_program(must(resolve(spec, registry(), arch)), registry()));
}

// Returns a program with four query heads a KV head, at the smaller head_dim of 128 and 256 that both formats fit.
ProgramSource program_of(const std::string& k, const std::string& v, const char* layout, const std::string& arch) {
  const std::vector<int> head_dims = common(registry(), k, v, {128, 256});
  REQUIRE_MESSAGE(!head_dims.empty(), k, " and ", v, " share no head_dim");
  return program_of(k, v, head_dims.front(), head_dims.front(), 4, layout, arch);
}

// The codec kernels of a format are compiled in thirds: for any row, bulk quantize, and bulk dequantize with the
// reference. Bulk kernels of f16, bf16 and f32 rows differ in their loads and stores only, so one of the three is
// compiled. tests/compile/codec_test.cpp compiles the kernels of every axis. KVJIT_FULL=1 compiles all.
bool is_compiled(Role role, const std::string& arch, std::size_t turn) {
  if (std::getenv("KVJIT_FULL") != nullptr || role == Role::decode) return true;
  if (arch != "sm_90a") return role == Role::quantize_k;
  const kv::RowType type = std::array{kv::RowType::f16, kv::RowType::bf16, kv::RowType::f32}[turn / 3 % 3];
  switch (turn % 3) {
    case 0:
      return role == Role::quantize_k || role == Role::dequantize_k;
    case 1:
      return role == bulk_role(true, true, type);
    default:
      return role == bulk_role(false, true, type) || role == Role::reference;
  }
}

TEST_CASE("kernels of every second format with itself: no spills, no stack") {
  const bool is_complete = std::getenv("KVJIT_FULL") != nullptr;
  Kernels kernels;
  std::size_t next = 0;
  for (const std::string& name : every_nth(format_names(registry()), 2)) {
    const char* in_turn = next % 4 == 0 ? "sm_75" : next % 4 == 2 ? "sm_120a" : "";
    ++next;
    for (const std::string arch : {"sm_75", "sm_90a", "sm_120a"})
      if (is_known(arch) && (is_complete || arch == "sm_90a" || arch == in_turn))
        for (const auto& [role, source] : program_of(name, name, "planar", arch).kernels)
          if (is_compiled(role, arch, next)) kernels.add(source);
  }
  kernels.compile(kThreads);
}

// K of 576 channels and V of 512, or both of 512, with as many query heads as a rank of DeepSeek V3.2 has of 8, and 4.
// Records of smaller heads have the same heads for both.
// For sm_80, queries of f16 are two bfloat terms beside 512 sums of V: there 656-byte records spill up to 36 bytes,
// which templates/kernels/decode/NOTES.md lists. The reference kernel of 352-byte records spills 52.
TEST_CASE("decode and codec kernels of every record: no spills, no stack; of sm_80 few") {
  constexpr int kMostSpilled = 36, kMostSpilledByReference = 52;
  Kernels kernels, short_of_registers, references;
  std::size_t next = 0;
  for (const std::string& name : record_names(registry())) {
    const int dim = must(registry().format(name, {}))->heads.back();
    for (const int gqa : {4, 16})
      for (const char* layout : {"rows", "planar"})
        for (const auto& [role, source] :
             program_of(name, name, dim, std::min(dim, 512), gqa, layout, "sm_90a").kernels)
          if (role == Role::decode || (gqa == 4 && is_compiled(role, "sm_90a", 0)))
            (role == Role::reference ? references : kernels).add(source);
    if (dim == 576 && next++ % 2 == 0)
      short_of_registers.add(program_of(name, name, dim, 512, 16, "rows", "sm_80").kernels.at(Role::decode));
  }
  kernels.compile(kThreads);
  if (references.size() > 0) references.compile(kThreads, kMostSpilledByReference);
  if (short_of_registers.size() > 0) short_of_registers.compile(kThreads, kMostSpilled);
}

TEST_CASE("decode kernels of every fourth format with itself in rows: no spills, no stack") {
  Kernels kernels;
  for (const std::string& name : every_nth(format_names(registry()), 4))
    kernels.add(program_of(name, name, "rows", "sm_90a").kernels.at(Role::decode));
  // Unaligned rows are copied by chunks: on sm_75, which has no asynchronous copies, and on sm_80, the oldest arch that
  // has them.
  for (const char* arch : {"sm_75", "sm_80"})
    if (is_known(arch))
      for (const char* name : {"q8_0", "q4_0", "tbq4_0", "tbq3_0"})
        kernels.add(program_of(name, name, "rows", arch).kernels.at(Role::decode));
  kernels.compile(kThreads);
}

// V has two sections of 256 values, each with its own sums; for K each lane finds its channels by a mask. These kernels
// need the most registers of all combinations.
TEST_CASE("masked keys with values of two sections: no spills, no stack") {
  Kernels kernels;
  for (const char* v :
       {"amesianx_tbqp3_0", "amesianx_tbqp4_0", "tbqp3_dense256_qsfirst_raw", "tbqp4_dense256_qsfirst_raw"})
    kernels.add(program_of("turbo_split_54", v, "planar", "sm_90a").kernels.at(Role::decode));
  kernels.compile(kThreads);
}

// Compiling every combination takes too long for every commit: run with KVJIT_FULL=1.
TEST_CASE("full pair matrix for sm_90a" * doctest::skip(std::getenv("KVJIT_FULL") == nullptr)) {
  Kernels kernels;
  std::size_t pairs = 0;
  for (const std::string& k : format_names(registry()))
    for (const std::string& v : format_names(registry())) {
      kernels.add(program_of(k, v, "planar", "sm_90a").kernels.at(Role::decode));
      ++pairs;
    }
  std::printf("%zu pairs, %zu decode kernels\n", pairs, kernels.size());
  kernels.compile(std::max(2u, std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace kvjit::test
