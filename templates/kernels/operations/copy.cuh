// copy: copies stored rows to another cache of the same format, byte for byte. kRowThreads threads take a row.
//
// The generator lists the ranges of bytes to copy (Plan::Ranges). If both layouts are alike, a range is a whole row of
// codes or of scales. If they differ, each field of a block is a range, with its own offset and stride in either cache.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/operations/cache_tokens.cuh"
#include "device/simt.cuh"
#include "formats/fields.cuh"
#include "formats/stored_row.cuh"

namespace kv {

// Copies kUnit bytes with one load and one store.
template <int kUnit>
KV_DEVICE void copy_unit(u8* to, const u8* from) {
  if constexpr (kUnit == 16) {
    u32 words[4];
    load_u128(words, from);
    store_u128(to, words[0], words[1], words[2], words[3]);
  } else if constexpr (kUnit == 8) {
    *reinterpret_cast<i64*>(to) = *reinterpret_cast<const i64*>(from);
  } else if constexpr (kUnit == 4) {
    *reinterpret_cast<u32*>(to) = *reinterpret_cast<const u32*>(from);
  } else if constexpr (kUnit == 2) {
    *reinterpret_cast<u16*>(to) = *reinterpret_cast<const u16*>(from);
  } else {
    *to = *from;
  }
}

// A copied range: kBytes bytes of each of kBlocks blocks, among the codes (kIsCode) or among the scales. part: number
// of this thread among the kRowThreads of the row.
template <bool kIsCode, int kBytes, int kBlocks, int kFromAt, int kFromStride, int kToAt, int kToStride>
struct CopiedBytes {
  template <class Plan>
  KV_DEVICE static void copy(const StoredRow& to, const StoredRow& from, int row_thread) {
    // A row of a plane begins at a multiple of its own bytes, and the stride of its blocks divides these. So kUnit need
    // not consider where the row begins.
    constexpr int kUnit = unit_of<Plan::kAlignment>(kFromAt | kToAt, kBytes, kFromStride | kToStride);
    constexpr int kUnits = kBytes / kUnit, kAll = kBlocks * kUnits;
    const u8* const source = (kIsCode ? from.codes : from.scales) + kFromAt;
    u8* const target = (kIsCode ? to.codes : to.scales) + kToAt;
    KV_UNROLL
    for (int first = 0; first < kAll; first += Plan::kRowThreads) {
      const int u = first + row_thread, block = u / kUnits, j = u % kUnits * kUnit;
      if (u < kAll) copy_unit<kUnit>(target + block * kToStride + j, source + block * kFromStride + j);
    }
  }
};

// A range that is padding in the target: zeros.
template <int kBytes, int kBlocks, int kToAt, int kToStride>
struct ZeroBytes {
  template <class Plan>
  KV_DEVICE static void copy(const StoredRow& to, const StoredRow&, int row_thread) {
    for (int i = row_thread; i < kBytes * kBlocks; i += Plan::kRowThreads)
      to.codes[i / kBytes * kToStride + kToAt + i % kBytes] = 0;
  }
};

template <class... Ranges>
struct CopiedRanges {
  template <class Plan>
  KV_DEVICE static void copy(const StoredRow& to, const StoredRow& from, int row_thread) {
    (Ranges::template copy<Plan>(to, from, row_thread), ...);
  }
};

template <class Plan>
KV_DEVICE void copy(const CopyArgs& args) {
  const i64 item = i64(block_x()) * Plan::kThreads + thread();
  if (item / Plan::kRowThreads >= operation_rows(args)) return;
  const OperationRow row = operation_row(args, u32(item / Plan::kRowThreads));
  const i64 from = slot_of(args.from, row), to = slot_of(args.to, row);
  if (from < 0 || to < 0) return;
  Plan::Ranges::template copy<Plan>(stored_row<typename Plan::To>(args.to.side, row.sequence, row.head, to),
                                    stored_row<typename Plan::From>(args.from.side, row.sequence, row.head, from),
                                    int(item % Plan::kRowThreads));
}

}  // namespace kv
