// CodecPlan, BulkPlan, BulkKernel: the plans of kernels that quantize and dequantize rows of one side of a cache.
// CodecPlan describes the side; the kernels with one row a warp need no more. BulkPlan says how a format is written and
// read in bulk, and BulkKernel which kernel does it for rows of one element type.
// SPDX-License-Identifier: MIT
#pragma once
#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "generator/catalogue/arch.hpp"
#include "generator/formats/format.hpp"
#include "generator/resolve/problem.hpp"
#include "generator/source.hpp"

namespace kvjit {

// One side of a cache (K or V), as the kernels of the families codec and operations take it.
struct CodecPlan {
  Format format;
  int head_dim = 0;
  bool is_planar = false, is_quantize = true;
  int page_tokens = 0;  // tokens of a page in layout paged, else 0
  bool checks = false;  // the kernel runs only if its call has passed the checks
  std::string arch;
  std::string slots = {};  // kernels by slots: the type of a slot; "": tokens are numbered from a first one on
  // Sequences have lengths in device memory (templates/formats/stored_lengths.cuh).
  bool has_lengths = false;
  bool reads_seen = false;  // with lengths: tokens that no query sees are not read
  // The first pass of prefill in two: rows are brought into the range of halves (kernels/codec/row_powers.cuh).
  bool fits_rows = false;
  std::string layout() const {
    return layout_name(is_planar, page_tokens) + (slots.empty() ? "" : "." + slots) + (has_lengths ? ".lengths" : "") +
           (reads_seen ? ".seen" : "") + (checks ? ".checked" : "") + (fits_rows ? ".fitted" : "");
  }
};

// Whether the kernels with one row a warp can serve a format. The warp holds value i of the row in lane i % 32, so the
// groups that it reduces over must divide 32 values or be multiples of them. Fails with unsupported, and says what is
// needed.
Result<void> check_codec(const Format& format, int head_dim);

// One side of a problem's cache: 0 = K, 1 = V.
CodecPlan side_plan(const Problem& problem, int side, bool is_quantize = false);

// The bulk kernels take rotated formats on the tensor cores, other formats with whole blocks a lane. The sizes are
// those of templates/kernels/codec: bulk_tile.cuh, bulk_encode.cuh and wgmma_rotation.cuh.
constexpr int kBulkGroup = 128;  // values that are rotated and scaled together
constexpr int kBulkRows = 16;    // rows of a bulk tile, which one warp takes
// Bytes of shared memory: the tables of bulk_encode.cuh, the +-1 of H16, and one stage of a warp; then a 128 x 128
// matrix of fp16.
constexpr int kEncodingBytes = 256 * 256, kHadamardBytes = 16 * 32 * 4, kBulkStageBytes = kBulkRows * 320;
constexpr int kOperandBytes = kBulkGroup * kBulkGroup * 2;
// Factor of a dense matrix in kernels, so that the rests of its entries are normal numbers in fp16 and in E4M3.
constexpr double kDenseLength = 1 << 14;
enum class BulkFamily {
  matrix,    // quantize_bulk_wgmma, dequantize_bulk_wgmma: any rotation, by warpgroups
  hadamard,  // quantize_bulk, dequantize_bulk: a Walsh-Hadamard transform, by warps
  dense,     // quantize_bulk_dense: a matrix, by warps
  blocks,    // quantize_bulk_blocks, dequantize_bulk_blocks: no rotation, whole blocks a lane
};
// The packing of a lane's codes in its words: templates/kernels/codec/bulk_codes.cuh.
enum class BulkPacking { stream, nibbles, split };
// The places of codes and scales of a group, which four lanes share. Offsets and strides are bytes; offsets count from
// the start of the row.
struct BulkPlaces {
  BulkPacking packing = BulkPacking::stream;
  int codes_at = 0, scale_at = 0;
  int code_stride = 0, scale_stride = 0;       // from group to group
  int lane_stride = 0, lane_scale_stride = 0;  // from lane to lane; of scales 0 if the group stores one scale
  int high_at = 0,                             // split: from codes_at to the top bits of codes
      high_stride = 0;                         // split: the top bits' stride from lane to lane, less lane_stride
  int pad_at = 0, pad_bytes = 0;               // zero padding of a block
  int unit = 16;                               // alignment of a lane's codes
  int table_bytes(int bits) const;  // of the table of dequantize: an entry for each two codes, in a copy for each lane
};
// Fills `places`. Returns what kernels over bulk tiles require and the format's fields lack, or null.
const char* plan_bulk_places(const Format& format, bool is_planar, BulkPlaces& places);

struct BulkPlan {
  BulkFamily family = BulkFamily::hadamard;
  bool is_dense = false;               // the rotation is a 128 x 128 matrix, else a Walsh-Hadamard transform
  std::vector<std::uint32_t> buckets;  // words that are added to a value's bits, so that they carry into its cell
  double steps = 0x1p18;               // integer steps of a standard deviation
  BulkPlaces places;
  double unit = 1;             // dequantize: a table's fp16 number is an entry of the codebook / unit
  double code_rounding = 0;    // root mean square of what one fp16 number misses of an entry, relative to the entries
  double matrix_rounding = 0;  // the same of the entries of the rotation's matrix
  int lane_values = 0;         // family blocks: values of a lane
  // Family blocks: lanes for a row of kernels that fit rows (CodecPlan::fits_rows), which have a warp in common.
  int fitting_lanes(int head_dim) const { return int(std::bit_ceil(unsigned(head_dim / lane_values))); }
};
// No plan if the format needs the kernels with one row a warp. `decision` says what was chosen, and why.
std::optional<BulkPlan> plan_bulk(const Format& format, int head_dim, bool is_planar, const Arch& arch,
                                  Decision& decision);

// How many fp16 numbers hold a number whose result is written as `type`. One does if its relative rounding error,
// `rounding`, is far below that of the type; else two.
int fp16_terms(double rounding, Element type);

// A bulk call: its direction (quantize or dequantize) and the element type of its rows.
struct BulkCall {
  bool is_quantize = true;
  Element type = Element::f16;
};
struct BulkKernel {
  const char* name = nullptr;  // of the kernel and of its fragment
  bool by_matrix = false;      // the rotation is a product with a matrix, also if it is a Walsh-Hadamard transform
  int code_terms = 2;          // dequantize: fp16 numbers that hold an entry of the codebook
  int rest_bits = 0;           // bits of the rest of a matrix entry, beside its fp16 number: 16, 8 (E4M3) or 0
  double products() const { return code_terms + rest_bits / 16.0; }
  bool stages_operand = false;                        // quantize: rows are a wgmma operand where they are staged
  int warps = 0, warp_tiles = 1;                      // of a block; bulk tiles that a warp takes at a time
  int matrix_at = 0, stage_at = 0, shared_bytes = 0;  // bytes from the start of shared memory; and its size
};
// The kernel of a plan for one call. None if the family has no such kernel, or if it does not fit shared memory.
std::optional<BulkKernel> plan_bulk_kernel(const BulkPlan& plan, const Format& format, const BulkCall& call,
                                           const Arch& arch);

}  // namespace kvjit
