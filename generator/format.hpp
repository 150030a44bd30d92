// Format: how numbers become bytes. One definition, read by quantise, dequantise, attention (K side and V side) and the
// reference codec. Files state axes; offsets, sizes and bits a value are derived, so a file cannot state them wrongly.
// SPDX-License-Identifier: MIT
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/result.hpp"
#include "generator/rotation.hpp"
#include "generator/spec.hpp"

namespace kvjit {

// What the bytes of a value are.
enum class CodeKind {
  plain,    // an f16 or bf16 number; no scale
  uniform,  // an integer code; value = (code - offset) * scale
  table,    // an index into a codebook; value = values[code] * scale
};

// Where the bits of code i of a block lie (reference names: formats of ggml and of the TurboQuant forks).
enum class Packing {
  sequential,  // bits i*b .. i*b+b-1 of a little-endian bit stream (NIB, P2, P3LE, bytes ...)
  split,       // 4 bit: byte j holds element j in its low nibble and element j + block/2 in its high one (ggml q4_0)
};

enum class Rounding {
  bounds,     // code = #{B <= v}
  half_up,    // code = trunc(v / d + offset + 0.5), clamped (q4_0)
  half_away,  // code = round-half-away(v / d) + offset, clamped (q8_0)
};

// How the scale d of a block is found; x are the values, y the rotated unit vector, C the chosen centroids.
enum class ScaleRule {
  none,
  amax,            // d = max|x| / divisor
  signed_max,      // d = (the x of largest |x|, sign kept; the first of equals) / divisor   (divisor may be negative)
  raw_norm,        // d = |x|_2;  codes are those of x/|x| in the codebook's unit
  corrected_norm,  // d = |x|_2 / |C|_2
};

enum class FieldKind { codes, scale, pad };

// A field of a stored block, in file order. `at` and `bytes` are derived.
struct Field {
  FieldKind kind = FieldKind::codes;
  int at = 0, bytes = 0;
};

struct Format {
  std::string name;  // the variant key = file name; inline formats get a name spelled from their numbers
  std::string title, source;
  std::vector<std::string> aliases;
  int block = 1;  // values a stored block; also the scale group
  CodeKind kind = CodeKind::plain;
  Element element = Element::f16;  // kind == plain only
  int bits = 16;                   // bits a code (or an element)
  Packing packing = Packing::sequential;
  bool twos_complement = false;  // the stored bits are code - 2^(bits-1) as a signed integer (q8_0)
  std::vector<double> values;    // kind == table: ascending, 2^bits of them, in units of the scale (as float32 numbers)
  std::vector<double> bounds;    // kind == table
  int offset = 0;                // kind == uniform: the code that means 0
  int max_code = 0;              // largest code that is produced
  Rounding rounding = Rounding::bounds;
  ScaleRule scale = ScaleRule::none;
  double divisor = 1;           // amax, signed_max
  Rotation rotation;            // identity when not rotated
  std::vector<Field> fields;    // file order
  double max_relative_mse = 0;  // what the tests hold it to, on N(0,1) rows of `block` (0: exact up to rounding)

  // Derived.
  int block_bytes = 0, codes_at = 0, code_bytes = 0, scale_at = 0;
  bool has_scale() const { return scale != ScaleRule::none; }
  double bits_per_value() const { return 8.0 * block_bytes / block; }
  // Bytes of one row of n values; n must be a multiple of block.
  long long row_bytes(long long n) const { return n / block * block_bytes; }
  // Bit position of code i (0..block-1) from the start of the block's code bytes.
  int bit_of(int i) const { return packing == Packing::split ? i % (block / 2) * 8 + i / (block / 2) * 4 : i * bits; }
};

struct RotationLookup {  // how a format file's rotation name becomes a Rotation (the registry provides it)
  virtual Result<Rotation> rotation(const std::string& name, int size, const Where& where) const = 0;
  virtual ~RotationLookup() = default;
};

// A file of specs/formats: name is the file's stem. Fails with bad_input (unknown key, wrong type, codebook of the wrong
// length ...), each with its place.
Result<Format> parse_format(std::string_view toml_text, const std::string& file, const RotationLookup& rotations);

// The Format of inline numbers; bits, block, codebook, scale, rotation. Equal numbers give an equal Format.
Result<Format> inline_format(const SideSpec& side, const RotationLookup& rotations);

}  // namespace kvjit
