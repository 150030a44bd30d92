// generator/emit/rotation.cpp: the text of a rotation. Names derive from its alias; tables have the order that the
// fragments expect.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include "generator/emit/writer.hpp"
#include "generator/program.hpp"
#include "tests/support/registry.hpp"

using namespace kvjit;

namespace {

using test::registry;

std::string written(const Rotation& rotation, const std::string& type) {
  emit::Writer w{registry(), {}, {}};
  emit::write_rotation(w, rotation, type);
  return w.text;
}

Rotation rotation(const char* name, int size) { return registry().rotation(name, size, {}).value(); }

}  // namespace

TEST_CASE("two rotations share no identifier") {
  for (const auto& [name, size] :
       {std::pair("wht_signed", 64), std::pair("dense_517c", 128), std::pair("iso_torch", 128)}) {
    const Rotation r = rotation(name, size);
    std::string key = written(r, "KeyRotation");
    const std::string residual = written(r, "Residual");
    CHECK(key.find("using KeyRotation = ") != std::string::npos);
    CHECK(residual.find("KeyRotation") == std::string::npos);
    for (std::size_t at; (at = key.find("KeyRotation")) != std::string::npos;) key.replace(at, 11, "Residual");
    CHECK(key == residual);
  }
  CHECK(written(Rotation{}, "KeyRotation") == "using KeyRotation = NoRotation;\n\n");
  CHECK(written(rotation("wht_signed", 64), "R") ==
        "// wht_signed, groups of 64\n"
        "struct RSigns {\n"
        "  static constexpr int kSize = 64;\n"
        "  static constexpr float kNorm = 0.125f;  // 1 / sqrt(kSize)\n"
        "  KV_DEVICE static u32 pre_signs(int word) {\n"
        "    constexpr u32 kWords[2] = {0xe46a0359, 0x42f85949};\n    return kWords[word];\n  }\n"
        "  KV_DEVICE static u32 post_signs(int word) {\n"
        "    constexpr u32 kWords[2] = {0x16acee90, 0x3f628fdc};\n    return kWords[word];\n  }\n"
        "};\nusing R = Wht<RSigns>;\n\n");
}

TEST_CASE("a side without signs has no table; groups below 32 repeat their signs inside a word") {
  CHECK(written(rotation("wht_tq3", 32), "R").find("u32 post_signs(int) { return 0; }") != std::string::npos);
  CHECK(written(rotation("wht_unsigned", 128), "R").find("KV_CONSTANT") == std::string::npos);
  Rotation r = rotation("wht_unsigned", 16);
  r.pre[1] = r.pre[15] = -1;
  CHECK(written(r, "R").find("kWords[1] = {0x80028002}") != std::string::npos);
}

TEST_CASE("tables: dense by columns, blocks by partner and padded to whole blocks") {
  const Rotation dense{"d", RotationKind::dense, 2, {}, {}, 2, Matrix({1, 2, 3, 4})};
  CHECK(written(dense, "R").find("kRTable[4] = {\n    1.0f, 3.0f, 2.0f, 4.0f}") != std::string::npos);
  const Rotation pair{"b", RotationKind::blocks, 2, {}, {}, 2, Matrix({1, 2, 3, 4})};
  CHECK(written(pair, "R").find("kRTable[4] = {\n    1.0f, 2.0f, 4.0f, 3.0f}") != std::string::npos);
  const Rotation three{"b", RotationKind::blocks, 4, {}, {}, 3, Matrix({1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 0, 0})};
  const std::string text = written(three, "R");
  CHECK(
      text.find("kRTable[18] = {\n    1.0f, 2.0f, 3.0f, 5.0f, 6.0f, 4.0f, 9.0f, 7.0f, 8.0f, 1.0f, 0.0f, 0.0f, 0.0f") !=
      std::string::npos);
  CHECK(std::string(emit::rotation_fragment(three)) == "rotations/blocks.cuh");
  CHECK(std::string(emit::rotation_fragment(dense)) == "rotations/dense.cuh");
}

TEST_CASE("a projection that is not orthogonal is refused as the rotation of a format") {
  const auto specs = parse_specs(
      "[k]\nbits = 4\nblock = 256\nrotation = 'gaussian_517c'\n[v]\nbits = 4\n[attention]\nhead_dim = 256", "s.toml");
  const auto program = make_program(resolve((*specs)[0], registry(), "sm_80").value(), registry());
  REQUIRE_FALSE(program);
  CHECK(program.error().code == Code::unsupported);
  CHECK(program.error().message ==
        "b4_block256_lloyd_max_corrected_norm_gaussian_517c: rotation 'gaussian_517c' is not orthogonal, so its "
        "transpose does "
        "not undo it");
}
