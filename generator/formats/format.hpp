// Format: how numbers become bytes. One definition, read by quantize, dequantize, attention (K side and V side) and the
// reference codec. Files state axes; offsets, sizes and bits a value are derived, so a file cannot state them wrongly.
// SPDX-License-Identifier: MIT
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/base/element.hpp"
#include "generator/base/result.hpp"
#include "generator/formats/rotation.hpp"
#include "generator/formats/side_spec.hpp"

namespace kvjit {

// What the bytes of a value are.
enum class CodeKind {
  plain,    // a number of its own (Element), times the scale if the format has one
  uniform,  // an integer code; value = (code - offset) * scale, plus the block's minimum where one is stored
  table,    // an index into a codebook; value = values[code] * scale
};

enum class Rounding {
  bounds,     // table: the cell is #{B <= v}; plain: to nearest even
  half_up,    // code = trunc(v / d + offset + 0.5), clamped (q4_0)
  half_away,  // code = round-half-away(v / d) + offset, clamped (q8_0)
};

// Codes that share a codebook: all values of a block, or the channels of a mask, or the signs of a residual.
struct Section {
  std::vector<int> members;  // channels of the block, ascending; code k belongs to members[k]; empty: all, in order
  CodeKind kind = CodeKind::plain;
  Element element = Element::f16;  // kind == plain only
  int bits = 16;                   // of a code (or an element)
  bool twos_complement = false;    // the stored bits are code - 2^(bits-1) as a signed integer (q8_0)
  std::vector<double> values;      // kind == table: of each code, in units of the scale (as float32 numbers)
  std::vector<double> bounds;      // kind == table: between cells, ascending (float32); v == bound: the upper cell
  std::vector<int>
      cell_codes;    // kind == table: the code of each cell, where codes do not ascend (E2M1); empty: they do
  int offset = 0;    // kind == uniform: the code that means 0
  int max_code = 0;  // largest code that is produced
  Rounding rounding = Rounding::bounds;

  int count(int block) const { return members.empty() ? block : int(members.size()); }
  int channel(int k) const { return members.empty() ? k : members[std::size_t(k)]; }
};

// How the scale d that divides the values of a span is found; x are the values (rotated).
enum class ScaleRule {
  none,        // d = 1
  tensor,      // one number for the whole tensor, given by the caller
  amax,        // d = max|x| / divisor
  signed_max,  // d = (the x of largest |x|, sign kept; the first of equals) / divisor   (divisor may be negative)
  norm,        // d = |x|_2;  codes are those of x/|x| in the codebook's unit
  min_step,    // d = (max x - min x) / divisor, and the minimum is stored too; codes are those of x - min
};

// What is stored as the scale once the codes are chosen; C are the chosen entries.
enum class Refine {
  none,           // d itself
  matched,        // |x|_2 / |C|_2: the decoded span is as long as x was ("corrected norm")
  least_squares,  // <x,C> / <C,C>
  weighted,       // <w x,C> / <w C,C> with w = x^2 (iq4_nl)
};

// The float32 operations that bring a value into units of d: they decide ties.
enum class Division {
  reciprocal,  // x * (1 / d)
  quotient,    // x / d
  ratio,       // x * (divisor / max|x|)
  product,     // x is compared with bound * d
};

enum class ScaleType {
  f16,
  bf16,
  e4m3,   // OCP E4M3FN, round to nearest even, saturating at 448
  ue4m3,  // ggml's unsigned reading of it: half up on the dropped mantissa, 0x7F decodes to 0
  e8m0,   // a power of two, rounded down
};
int bytes_of(ScaleType type);

struct Scale {
  ScaleRule rule = ScaleRule::none;
  Refine refine = Refine::none;
  ScaleType type = ScaleType::f16;
  Division division = Division::reciprocal;
  int group = 0;             // values that share one stored scale: the block, or a part of it
  int span = 0;              // values that it is computed over: the group, or several blocks that repeat it
  double divisor = 1;        // amax, signed_max, min_step
  double least = 0;          // d is at least this
  bool by_stored = false;    // codes are chosen with the scale as it is stored, not with d
  bool renormalise = false;  // decoding divides by |C|_2: the block is as long as the scale says
};

// A second section holds the signs of what the first one missed: r = u - C for the unit vector u (QJL).
enum class ResidualKind { none, projected, direct };
struct Residual {
  ResidualKind kind = ResidualKind::none;
  Rotation projection;       // projected: bits are the signs of projection(r); direct: of r itself
  bool is_original = false;  // r is taken before the rotation, and so is what decoding adds
  bool is_mean = false;      // the stored norm is the mean of |r|, not |r|_2
  bool is_relative = true;   // ... of the unit vector; else it is multiplied by |x|
  double unit = 1;           // ... and by this
  double factor = 1;         // decoded: factor * stored norm (times the scale if relative) * projection^T(signs)
};

enum class FieldKind { codes, scale, minimum, residual_norm, residual_signs, mask, pad };

// A field of a stored block, in file order. Offsets and sizes are derived.
struct Field {
  FieldKind kind = FieldKind::codes;
  int section = 0;        // codes: whose
  int bits = 0, low = 0;  // codes: the field holds bits low .. low + bits - 1 of each code
  int split = 0;  // codes: 0: a little-endian bit stream; h: bytes pair elements j and j + h of spans of 2h (4 bit)
  // codes of 3 bits, in groups of 32: three words, of which word i of group j stands at word i * groups + j of the
  // field. The first two hold eight codes each, one a nibble, whose spare bits are the top bits of eight more; the
  // other two bits of those are pairs in the third word's nibbles. (Group j: codes 0..7 and 8..15 by its first word and
  // the low pairs, 16..31 by its second.)
  bool is_nibbles = false;
  int at = 0, bytes = 0;  // in a block of layout rows
  int plane_at = 0;       // in the block's part of the codes plane or of the scales plane
  bool is_code() const { return kind == FieldKind::codes || kind == FieldKind::residual_signs; }

  // Where bit `bit` of the field's part of code k stands, from the start of the field.
  int bit_of(int k, int bit = 0) const {
    if (is_nibbles) {
      const int groups = bytes / 12, group = k / 32, half = k / 16 % 2, nibble = k % 8;
      if (k % 16 >= 8 && bit < 2) return 32 * (2 * groups + group) + 4 * nibble + 2 * half + bit;
      return 32 * (half * groups + group) + 4 * nibble + (k % 16 < 8 ? bit : 3);
    }
    return (split > 0 ? (k / (2 * split) * split + k % split) * 8 + k / split % 2 * 4 : k * bits) + bit;
  }
};

struct Format {
  std::string name;  // the variant key = file name; inline formats get a name spelled from their numbers
  std::string title, source;
  std::vector<std::string> aliases;  // other names that mean this format
  std::vector<std::string> also;     // published names that these bytes go by too, but that mean another format here
  bool is_per_head = false;          // block = "head_dim": made anew for each head_dim
  int block = 1;                     // values a stored block
  std::vector<Section> sections;     // the codes; then those of the outliers; then the signs of the residual
  int residual_section = -1;         // index, or -1
  int stored_mask = 0;  // outliers a block, when each block stores its own mask; 0: the mask is the format's
  Scale scale;
  Residual residual;
  Rotation rotation;             // identity when not rotated
  bool rounds_to_bf16 = false;   // rotated values are rounded to bf16 before they are coded (Atlas)
  bool is_padded = false;        // heads are zero-padded to whole rotations and blocks
  bool zero_bytes = false;       // a block of tiny norm is all zero bytes (AmesianX)
  std::vector<double> channels;  // a factor a channel, applied before everything (calibration); empty: none
  std::vector<Field> fields;     // file order
  double max_relative_mse = 0;   // what the tests hold it to, on N(0,1) rows of `block` (0: exact up to rounding)

  // Derived: bytes of a block, and of its parts in layout planar.
  int block_bytes = 0, code_bytes = 0, scale_bytes = 0;

  const Section& codes() const { return sections.front(); }
  bool has_scale() const { return scale.rule != ScaleRule::none && scale.rule != ScaleRule::tensor; }
  bool has_minimum() const { return scale.rule == ScaleRule::min_step; }
  bool has_residual() const { return residual_section >= 0; }
  double bits_per_value() const { return 8.0 * block_bytes / block; }
  int granule() const;                 // heads are whole multiples of it, or are padded to be
  int stored_dim(int head_dim) const;  // values a head stores: head_dim, or more when it is padded
  // Values a head has in the domain that attention works in: stored_dim, and as many again for the signs of a residual.
  // Where a head of bare numbers does not fill the lanes of a warp, zeros do.
  int inner_dim(int head_dim) const { return (stored_dim(head_dim) + 31) / 32 * 32 * (has_residual() ? 2 : 1); }
  bool is_ragged(int head_dim) const { return block == 1 && !is_transformed() && stored_dim(head_dim) % 32 != 0; }
  // Does attention work in another domain than the caller's (queries and outputs are transformed)?
  bool is_transformed() const { return !rotation.is_identity() || has_residual() || is_padded || !channels.empty(); }
  // Bytes of one row of n stored values; n must be a multiple of block.
  long long row_bytes(long long n) const { return n / block * block_bytes; }
  // Bytes of one head of one token.
  long long head_bytes(int head_dim) const { return row_bytes(stored_dim(head_dim)); }
  const Field* field(FieldKind kind) const;  // the first of its kind, or null
};

// The values of a codebook in ascending order, whatever their codes.
std::vector<double> values_by_cell(const Section& section);
// The code of each cell where the top bit is the sign and the rest counts magnitudes.
std::vector<int> sign_magnitude_codes(std::size_t count);

// The power of two that every value of a section is a whole multiple of, or half an odd one, if 8-bit integers then
// hold them exactly: value = step * n or step * (n + 1/2) with n in -128..127. 0: there is none. (Of uniform codes the
// step is 1.)
double int8_step(const Section& section);

// Can heads of head_dim values be stored as the format? bad_input names the size that does not fit, and those that do.
Result<void> check_head_dim(const Format& format, int head_dim, const Where& where);

// Fixes offsets, sizes and the defaults that hang on them; called by whoever made the axes.
void derive(Format& format);

struct RotationLookup {  // how a format file's rotation name becomes a Rotation (the registry provides it)
  virtual Result<Rotation> rotation(const std::string& name, int size, const Where& where) const = 0;
  virtual ~RotationLookup() = default;
};

// A file of specs/formats: name is the file's stem. Fails with bad_input (unknown key, wrong type, codebook of the
// wrong length ...), each with its place. head_dim: what block = "head_dim" and a rotation of size "head_dim" stand
// for.
Result<Format> parse_format(std::string_view toml_text, const std::string& file, const RotationLookup& rotations,
                            int head_dim = 128);

// The Format of inline numbers; bits, block, codebook, scale, rotation. Equal numbers give an equal Format.
Result<Format> inline_format(const SideSpec& side, const RotationLookup& rotations);

}  // namespace kvjit
