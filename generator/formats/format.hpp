// Format: how numbers become bytes. There is one definition, which quantize, dequantize, attention (as K and as V) and
// the reference codec all read.
//
// A row of numbers is multiplied by the factors of a calibration, rotated, and cut into spans. A span gets one scale,
// and each of its values the code of an entry (in units of that scale). Codes and scales are packed into blocks, field
// by field. A format states each of these steps as an axis: Section, Scale, Residual, Rotation, Field. Offsets, sizes
// and bits a value are derived from the axes, so a file cannot state them wrongly. specs/docs/formats.md has the keys
// by which files state the axes.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/base/element.hpp"
#include "generator/base/result.hpp"
#include "generator/formats/rotation.hpp"
#include "generator/formats/side_spec.hpp"

namespace kvjit {

// How a code stands for a value.
enum class CodeKind {
  plain,    // the code is a number (Element); value = number * scale, if the format has a scale
  uniform,  // the code is an integer; value = (code - offset) * scale, plus the block's minimum if one is stored
  table,    // the code is an index into a codebook; value = values[code] * scale
  vector,   // eight values share two bytes (e8.hpp); a value's code is those bytes, and its place above them
};

// How the code of a value v is chosen; d is the scale.
enum class Rounding {
  bounds,     // table: the cell is the number of bounds that are at most v; plain: to nearest even
  half_up,    // code = trunc(v / d + offset + 0.5), clamped (q4_0)
  half_away,  // code = round-half-away(v / d) + offset, clamped (q8_0)
  half_even,  // code = round-half-even(v / d) + offset, clamped (ninfer)
};

// A section: the codes that share a codebook. They belong to all values of a block, to the channels inside or outside a
// mask of outliers, or to the signs of a residual.
struct Section {
  std::vector<int> members;  // channels of the block, ascending: code k belongs to members[k]; empty: all channels
  CodeKind kind = CodeKind::plain;
  Element element = Element::f16;  // plain: the type of the numbers
  int bits = 16;                   // bits of a code or of an element; vector: of two bytes, the share of a value
  // table: 0, or the bits that a value adds to the state of a trellis. Then the code of value i is the state behind it:
  // bits i * step_bits and up of the stored stream, of which neighbouring codes share all but step_bits bits.
  int step_bits = 0;
  // A trellis whose state before the first value is the one behind the last. Then the stream has step_bits bits a value
  // and no others, and what codes want behind its end is at its beginning.
  bool is_tail_biting = false;
  bool twos_complement = false;  // the stored bits are code - 2^(bits-1) as a signed integer (q8_0)
  // table: the value of each code in units of the scale, as float32 numbers. vector: the radii.
  std::vector<double> values;
  bool is_grid = false;  // table: code = round-half-even(v * h + h), h = max_code / 2; there are no bounds
  // table: between cells, ascending, as float32; v == bound is in the upper cell. vector: the least length of each
  // radius but the first, in units of the scale.
  std::vector<double> bounds;
  std::vector<int> cell_codes;     // table: the code of each cell where codes do not ascend (E2M1); empty: they ascend
  bool has_negative_zero = false;  // table: -0, and what is rounded to it, has a code of its own (E2M1)
  int offset = 0;                  // uniform: the code that means 0
  int max_code = 0;                // the largest code that is produced
  Rounding rounding = Rounding::bounds;

  bool is_bias15() const { return kind == CodeKind::plain && element == Element::e4m3b15; }
  bool is_trellis() const { return step_bits > 0; }
  bool is_vector() const { return kind == CodeKind::vector; }
  bool is_wide() const { return bits > 8 && !is_trellis(); }                            // numbers of 16 or 32 bits
  int count(int block) const { return members.empty() ? block : int(members.size()); }  // codes a block
  int channel(int k) const { return members.empty() ? k : members[std::size_t(k)]; }    // channel of code k
};

// How the scale d of a span is found. x are the (rotated) values of the span, which d divides.
enum class ScaleRule {
  none,        // d = 1
  tensor,      // d is one number for the whole tensor, which the caller gives
  amax,        // d = max|x| / divisor
  signed_max,  // d = (the x of largest |x|, with its sign; the first of equals) / divisor, which may be negative
  norm,        // d = |x|_2; codes are those of x / |x|_2 in the codebook's unit
  min_step,    // d = (max x - min x) / divisor; the minimum is stored too, and codes are those of x - min
  zero_point,  // d as min_step has it; z = -min x / d rounded to a code stands for 0, in the low bits of the stored f32
};

// The number that is stored as the scale once the codes are chosen. C are the chosen entries of the codebook.
enum class Refine {
  none,               // d itself
  matched,            // |x|_2 / |C|_2: the decoded span is as long as x was ("corrected norm")
  least_squares,      // <x,C> / <C,C>
  unbiased,           // <x,x> / <x,C>, or 0 if <x,C> is not above 0 (octave)
  weighted,           // <w x,C> / <w C,C> with w = x^2, and 0 if all x are 0 (iq4_nl)
  weighted_or_found,  // the same, but d itself if all x are 0 (q6_0)
};

// The float32 operations that bring a value x into units of d. They decide ties.
enum class Division {
  reciprocal,  // x * (1 / d)
  quotient,    // x / d
  ratio,       // x * (divisor / max|x|)
  product,     // x is compared with bound * d
};

// The type in which a scale is stored (base/minifloat.hpp).
enum class ScaleType {
  f16,
  bf16,
  e4m3,   // OCP E4M3FN, round to nearest even, saturating at 448
  ue4m3,  // ggml's E4M3 without a sign: half up on the dropped mantissa bit, 0x7F decodes to 0
  e8m0,   // a power of two, rounded as ScaleRounding says
  f32,
};
int bytes_of(ScaleType type);

// How a scale is rounded to its type.
enum class ScaleRounding {
  usual,   // e8m0: down; other types: as ScaleType says
  up,      // e8m0, e4m3: to the least number that is not smaller; 448 saturates. f32: to a power of two, as e8m0
  nearest  // e8m0: 2^floor(log2 d + 1/2)
};

struct Scale {
  ScaleRule rule = ScaleRule::none;
  Refine refine = Refine::none;
  ScaleType type = ScaleType::f16;
  ScaleRounding rounding = ScaleRounding::usual;
  Division division = Division::reciprocal;
  int group = 0;       // how many values share one stored scale: the block, or less
  int span = 0;        // how many values d is found over: the group, or several blocks that repeat the scale
  double divisor = 1;  // of the rules amax, signed_max, min_step and zero_point
  // amax: if above 0, d = max|x| * factor, a float32 product, instead of the quotient. norm: if above 0, the refined
  // scale is multiplied by it.
  double factor = 0;
  std::vector<double> search;  // amax: divisors tried behind `divisor`; one of less squared error is taken (4 over 6)
  bool over_tensor = false;  // amax: values are code * d * the caller's number for the tensor, and d is found for that
  bool per_head = false;   // tensor, over_tensor: times the caller's number for the KV head, which is in device memory
  double epsilon = 0;      // norm: codes are those of x / (|x| + epsilon), for tiny x too
  double least = 0;        // d is at least this
  double zero_norm = 0;    // amax: a span whose norm is at most this counts as zeros (normalising writers)
  bool by_stored = false;  // codes are chosen with d as it is stored
  bool renormalise = false;  // decoding divides by |C|_2, so the block is as long as the scale says
  // Whether d is found as a product of reciprocals.
  bool is_searched() const { return over_tensor || !search.empty(); }
};

// A residual: one more section, with the signs of what the first one missed, r = u - C for the unit vector u of the
// block (QJL).
enum class ResidualKind {
  none,       // there is no residual
  projected,  // signs of projection(r)
  direct      // signs of r
};
struct Residual {
  ResidualKind kind = ResidualKind::none;
  Rotation projection;       // projected: the map of r, which need not be orthogonal
  bool is_original = false;  // r is of the original domain, and decoding adds it there; else of the rotated domain
  bool is_mean = false;      // the stored norm is the mean of |r_i|; else |r|_2
  bool is_relative = true;   // the norm is that for the unit vector u; else it is multiplied by |x|_2
  double unit = 1;           // the norm is multiplied by this before it is stored
  double factor = 1;         // decoded residual = factor * stored norm (* scale if relative) * projection^T(signs)
};

enum class FieldKind {
  codes,           // bits of the codes of a section
  scale,           // a scale for each scale group
  minimum,         // the smallest value of each scale group, in f16 (ScaleRule::min_step)
  residual_norm,   // the norm of the residual of each scale group, in f16
  residual_signs,  // a bit a value, which is written and never read
  mask,            // a bit a value: its code is among those of the outliers
  pad,             // zeros
  segment_codes,   // codes of a segment, block after block
  segment_scales,  // what else the blocks of a segment store, block after block
  foreign          // bytes of a segment that the head does not have: neither read nor written
};

// A field of a stored block. Offsets and sizes are derived, except the size of a pad.
struct Field {
  FieldKind kind = FieldKind::codes;
  int section = 0;  // codes: the index of their section; of a segment: its index
  int bits = 0,     // codes: the field holds bits low .. low + bits - 1 of each code
      low = 0;
  // codes: 0 is a little-endian bit stream. h: codes have 1, 2 or 4 bits, and byte j of a span of 8 h / bits elements
  // has elements j, j + h, j + 2 h, ...
  int split = 0;
  int step = 0;              // codes: bits from one code to the next where codes overlap (a trellis); 0: they do not
  bool is_circular = false;  // codes that overlap: behind the last bit of the field is its first
  // The split parts (element / h in the span) of a byte from its lowest bits on, four bits a part: 0x3120 has j,
  // j + 2 h, j + h, j + 3 h. 0: parts ascend.
  unsigned order = 0;
  // Codes of 3 bits in groups of 32. A group is three words; word i of group j of the block is word i * groups + j of
  // the field. The first word has codes 0..7 of the group, one a nibble, and in the spare bits of its nibbles the top
  // bits of codes 8..15. The second word has codes 16..23 and the top bits of codes 24..31. Each nibble of the third
  // word has the low two bits of a code of 8..15, and above them those of a code of 24..31.
  bool is_nibbles = false;
  // scale: scale s of n is at place s % rows * (n / rows) + s / rows, as if a table of `rows` columns were stored by
  // columns.
  int rows = 1;
  bool in_scales = false;  // pad, foreign: the bytes belong to the plane of scales, in layout planar
  int at = 0,              // bytes from the start of the block, in layout rows
      bytes = 0;           // size
  int plane_at = 0;        // bytes from the start of the block's part of the plane (codes or scales), in layout planar
  // Whether the field belongs to the plane of codes, in layout planar.
  bool is_code() const {
    return kind == FieldKind::codes || kind == FieldKind::residual_signs || kind == FieldKind::segment_codes ||
           (kind == FieldKind::foreign && !in_scales);
  }
  int scale_place(int s, int count) const { return s % rows * (count / rows) + s / rows; }

  int stride() const { return step > 0 ? step : bits; }  // bits from one code to the next, without `split`

  // The place of bit `bit` of the field's part of code k, in bits from the start of the field. In a circular field it
  // may be behind the end; place_of has it inside.
  int place_of(int k, int bit) const { return is_circular ? bit_of(k, bit) % (8 * bytes) : bit_of(k, bit); }
  int bit_of(int k, int bit = 0) const {
    if (is_nibbles) {
      const int groups = bytes / 12, group = k / 32, half = k / 16 % 2, nibble = k % 8;
      if (k % 16 >= 8 && bit < 2) return 32 * (2 * groups + group) + 4 * nibble + 2 * half + bit;
      return 32 * (half * groups + group) + 4 * nibble + (k % 16 < 8 ? bit : 3);
    }
    if (split == 0) return k * stride() + bit;
    const int parts = 8 / bits, part = k / split % parts;
    return (k / (parts * split) * split + k % split) * 8 + position_of(part) * bits + bit;
  }
  // Which part of its byte, from the lowest bits on, holds the elements of a split part.
  int position_of(int part) const {
    for (int i = 0; order != 0 && i < 8 / bits; ++i)
      if (int(order >> 4 * i & 15) == part) return i;
    return part;
  }
};

struct Segment;

struct Format {
  std::string name;  // the variant key, which is the stem of the file's name; of inline formats: made of their numbers
  std::string title, source;
  std::vector<std::string> aliases;  // other names that mean this format
  std::vector<std::string> also;     // published names of these bytes that mean another format here
  bool is_per_head = false;          // a size in the file follows from head_dim: the format is made for each head_dim
  int block = 1;                     // values of a stored block
  std::vector<Section> sections;     // the codes; then those of outliers; then the signs of a residual
  // Ranges of channels, in order, which have formats of their own. Then the block is the whole head, `sections` has the
  // codes of the first segment, and `fields` say where the codes and scales of each segment are.
  std::vector<Segment> segments;
  std::vector<int> heads;       // of segments: the head sizes that the record serves, the largest last
  bool ends_with_head = false;  // of segments: the last one ends where the head does, so heads have any larger size
  int residual_section = -1;    // index of the signs of the residual; -1: there is none
  int stored_mask = 0;          // outliers a block where each block stores its own mask; 0: no stored mask
  Scale scale;
  Residual residual;
  Rotation rotation;             // of kind none where values are not rotated
  bool is_unnormalised = false;  // codes are those of sqrt(rotation.size) times the rotated values: of H without a norm
  bool rounds_to_bf16 = false;   // rotated values are rounded to bf16 before they are coded (Atlas)
  bool is_padded = false;        // heads are zero-padded to whole rotations and blocks
  bool swizzles_scales = false;  // of a side in pages: see templates/formats/rare/swizzled_scales.cuh
  bool zero_bytes = false;       // a block of tiny norm is stored as zero bytes (AmesianX)
  std::vector<double> channels;  // a factor for each channel, which is applied first (calibration); empty: none
  std::vector<Field> fields;     // in the order of the block's bytes
  double max_relative_mse = 0;   // relative squared error on rows of N(0,1) that tests allow; 0: exact up to rounding

  // Derived sizes in bytes.
  int block_bytes = 0,  // a block in layout rows
      code_bytes = 0,   // its part of the codes plane in layout planar
      scale_bytes = 0;  // its part of the scales plane

  const Section& codes() const { return sections.front(); }
  bool has_segments() const;
  bool has_scale() const { return scale.rule != ScaleRule::none && scale.rule != ScaleRule::tensor; }
  bool has_tensor_scale() const { return scale.rule == ScaleRule::tensor || scale.over_tensor; }
  bool has_head_scales() const { return scale.per_head; }
  bool has_zero_point() const { return scale.rule == ScaleRule::zero_point; }
  std::uint32_t zero_mask() const { return (1u << codes().bits) - 1; }  // the bits of a scale that have a zero point
  bool stores_minimum() const { return scale.rule == ScaleRule::min_step; }
  // Whether a number of each group is added to its values: the minimum, or what the zero point stands for.
  bool has_minimum() const { return stores_minimum() || has_zero_point(); }
  double gain() const;  // what scales are multiplied by to be those of the rotated values
  bool has_residual() const { return residual_section >= 0; }
  double bits_per_value() const { return 8.0 * block_bytes / block; }
  int granule() const;                 // Heads are whole multiples of this size, or are padded to one.
  int stored_dim(int head_dim) const;  // values that a head stores: head_dim, or more where it is padded
  // Values of a head in the rotated domain: stored_dim, and as many again for the signs of a residual. Where a head of
  // bare numbers does not fill the lanes of a warp (is_ragged), zeros do.
  int rotated_dim(int head_dim) const { return (stored_dim(head_dim) + 31) / 32 * 32 * (has_residual() ? 2 : 1); }
  bool is_ragged(int head_dim) const { return block == 1 && !is_transformed() && stored_dim(head_dim) % 32 != 0; }
  // Whether the rotated domain is another than the caller's, so that queries and outputs are transformed.
  bool is_transformed() const { return !rotation.is_identity() || has_residual() || is_padded || !channels.empty(); }
  // Bytes of one row of n stored values; n must be a multiple of block.
  long long row_bytes(long long n) const { return n / block * block_bytes; }
  // Bytes of one head of one token.
  long long head_bytes(int head_dim) const { return row_bytes(stored_dim(head_dim)); }
  const Field* field(FieldKind kind) const;               // the first field of a kind, or null
  const Field* field(FieldKind kind, int section) const;  // that of a section, or of a segment
  // Bytes of a row that a reader needs: without foreign bytes at its end.
  int read_bytes() const;
};

// Channels first .. first + count - 1 of a head, as whole blocks of a format.
struct Segment {
  int first = 0, count = 0;
  Format format;
};
inline bool Format::has_segments() const { return !segments.empty(); }

// The values of a codebook in ascending order, whatever their codes are.
std::vector<double> values_by_cell(const Section& section);
// The code of each of `count` cells where the top bit of a code is the sign and the rest numbers the magnitudes.
std::vector<int> sign_magnitude_codes(std::size_t count);

// The largest power of two `step` with which 8-bit integers hold all values of a section exactly: value = step * n for
// all of them, or value = step * (n + 1/2) for all, with n in -128..127. 0: there is none. For uniform codes it is 1.
double int8_step(const Section& section);

// Fails with bad_input if heads of head_dim values cannot be stored in the format. The error names the size that does
// not fit, and sizes that do.
Result<void> check_head_dim(const Format& format, int head_dim, const Where& where);

// Sets offsets, sizes and the defaults of scale groups. Whoever has set the axes calls it.
void derive(Format& format);

// Turns the name of a rotation in a format file into a Rotation. The registry implements it.
struct RotationLookup {
  virtual Result<Rotation> rotation(const std::string& name, int size, const Where& where) const = 0;
  virtual ~RotationLookup() = default;
};

// Reads a file of specs/formats; the format's name is the stem of the file's name. Fails with bad_input and a place
// (unknown key, wrong type, codebook of the wrong length ...). head_dim is the size that the word "head_dim" in the
// file stands for.
Result<Format> parse_format(std::string_view toml_text, const std::string& file, const RotationLookup& rotations,
                            int head_dim = 128);

// The Format of a side that states bits, block, codebook, scale and rotation. Equal numbers give an equal Format.
Result<Format> inline_format(const SideSpec& side, const RotationLookup& rotations);

}  // namespace kvjit
