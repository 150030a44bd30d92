// CodecPlan and BulkPlan: what kernels that quantize and dequantize rows of one side of a cache are told. CodecPlan
// names the side; the general kernels, which take a row a warp, need no more. BulkPlan is the bulk form for many rows
// at once.
// SPDX-License-Identifier: MIT
#pragma once
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
  int page_tokens = 0;  // of layout paged, else 0
  bool checks = false;
  std::string arch;
  std::string slots = {};  // kernels by slots: the type of their numbers; "": of the tokens from one on
  std::string layout() const {
    return layout_name(is_planar, page_tokens) + (slots.empty() ? "" : "." + slots) + (checks ? ".checked" : "");
  }
};

// What the kernels that take a row a warp can serve. One warp holds a row, value i in lane i % 32, and reduces over
// groups that are whole registers or equal parts of one. Fails with unsupported, and says what is needed.
Result<void> check_codec(const Format& format, int head_dim);

// One side of a problem's cache: 0 = K, 1 = V.
CodecPlan side_plan(const Problem& problem, int side, bool is_quantize = false);

// The write path for many rows at once: rotated formats on the tensor cores, the others a block a lane.
// Bytes of shared memory, as in templates/kernels/codec/bulk_tile.cuh, encoding.cuh and wgmma.cuh.
constexpr int kBulkGroup = 128;  // values that are rotated and scaled together
constexpr int kBulkRows = 16;    // of a warp
constexpr int kEncodingBytes = 256 * 256, kHadamardBytes = 16 * 32 * 4, kBulkStageBytes = kBulkRows * 320;
constexpr int kOperandBytes = kBulkGroup * kBulkGroup * 2;
// A dense matrix is held times this, so that the rests of its entries are normal halves, and normal in E4M3.
constexpr double kDenseLength = 1 << 14;
enum class BulkFamily {
  matrix,    // quantize_bulk_wgmma, dequantize_bulk_wgmma: any rotation, by warpgroups
  hadamard,  // quantize_bulk, dequantize_bulk: a Walsh-Hadamard transform, by warps
  dense,     // quantize_bulk_dense: a matrix, by warps
  blocks,    // quantize_bulk_blocks, dequantize_bulk_blocks: no rotation, whole blocks a lane
};
// How the codes of a lane lie in its words: templates/kernels/codec/bulk_codes.cuh.
enum class BulkPacking { stream, nibbles, split };
// Where the bytes of a group lie, from its row's first on; four lanes share it.
struct BulkPlaces {
  BulkPacking packing = BulkPacking::stream;
  int codes_at = 0, scale_at = 0;
  int code_stride = 0, scale_stride = 0;       // from group to group
  int lane_stride = 0, lane_scale_stride = 0;  // from lane to lane; of scales 0 where a group has one
  int high_at = 0, high_stride = 0;            // split: top bits, from codes_at on; from lane to lane, less lane_stride
  int pad_at = 0, pad_bytes = 0;               // zeros of a block
  int unit = 16;                               // alignment of a lane's codes
  int table_bytes(int bits) const;             // of decoding: a word or two for each pair of codes, 32 times
};
// What kernels over tiles ask of the format's fields and they do not have; null if they have it all.
const char* plan_bulk_places(const Format& format, bool is_planar, BulkPlaces& places);

struct BulkPlan {
  BulkFamily family = BulkFamily::hadamard;
  bool is_dense = false;               // any matrix of 128 x 128, else a Walsh-Hadamard transform
  std::vector<std::uint32_t> buckets;  // what is added to a value's bits to carry into its code
  double steps = 0x1p18;               // of an integer, a standard deviation
  BulkPlaces places;
  double unit = 1;             // decoding: halves stand for entries of the codebook / unit
  double code_rounding = 0;    // what one half leaves of an entry, root mean square of what codes stand for
  double matrix_rounding = 0;  // likewise of the rotation's matrix
  int lane_values = 0;         // of family blocks
};
// Nothing if the format needs the kernels for any row. `decision` says what was chosen, and why.
std::optional<BulkPlan> plan_bulk(const Format& format, int head_dim, bool is_planar, const Arch& arch,
                                  Decision& decision);

// Halves that hold a number which is to be written as a type, where one leaves `rounding` of it, relative: one, if its
// rest is far below what the type leaves itself.
int half_parts(double rounding, Element type);

// The kernel of a plan for rows of one type. Nothing if the family has none.
struct BulkCall {
  bool is_quantize = true;
  Element type = Element::f16;
};
struct BulkKernel {
  const char* name = nullptr;  // of the kernel
  bool by_matrix = false;
  int code_parts = 2;  // decoding: halves of an entry of the codebook
  int rest_bits = 0;   // of the matrix's entries, beside the half that each is: 16, 8, or none
  double products() const { return code_parts + rest_bits / 16.0; }
  bool stages_operand = false;  // quantize: rows are multiplied from where they are staged
  int warps = 0, warp_tiles = 1;
  int matrix_at = 0, stage_at = 0, shared_bytes = 0;
};
std::optional<BulkKernel> plan_bulk_kernel(const BulkPlan& plan, const Format& format, const BulkCall& call,
                                           const Arch& arch);

}  // namespace kvjit
