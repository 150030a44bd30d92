// The producer of prefill: kWarps warps, one or two warpgroups, that bring tiles of K and V to shared memory as halves.
// Each warp brings kTile tokens at once: its share of a tile, or of a part of it if packed rows are large. The operands
// of the products are one or two stages of K and as many of V; a barrier tells the consumers that a stage is full, and
// another tells the producer that all of them have left it.
//
//   packed rows   staged as decode stages them (kernels/decode/stage_tile.cuh), in a ring of kRing stages a warp; then
//                 each lane unpacks codes to halves in registers, multiplies them by their scale, and stores them
//   f16 rows      copied to their places in the operand
//
// Four lanes share a token, as they do in decode (kernels/decode/scores.cuh): lane 4 g + c unpacks lane reads of token
// g. The chunks of 16 bytes that it stores stand at chunk_place, so that the stores of a warp have no bank conflicts.
// The order of dimensions that results is that of the packing: queries take it when they are loaded, and the output
// leaves it when it is stored (kernels/prefill/rows.cuh).
// SPDX-License-Identifier: MIT
#pragma once
#include "device/bulk_copy.cuh"
#include "device/warp_roles.cuh"
#include "kernels/decode/decode.cuh"
#include "kernels/prefill/unpack_permutes.cuh"
#include "kernels/prefill/posted_work.cuh"

namespace kv {

// Where the q-th chunk of row lane c stands in a row of an operand, as a chunk of 8 halves: 8 chunks a panel.
KV_DEVICE constexpr int chunk_place(int q, int c) { return q / 2 * 8 + 2 * c + q % 2; }
// The shared address of chunk `place` of a token's row in an operand of kTokens tokens.
template <int kTokens = 128>
KV_DEVICE SharedAddress operand_chunk(SharedAddress operand, int token, int place) {
  return operand + place / 8 * (kTokens * 128) + token * 128 + ((place ^ token) & 7) * 16;
}

// The barriers of the operands and their stages. A stage is numbered by the tile that it holds, over all work tiles.
template <class Plan>
struct Stages {
  static constexpr int kStages = Plan::kStages, kPanel = Plan::kTokens * 128;
  KV_DEVICE static SharedAddress full(bool is_v, int n) {
    return Plan::kBarriersAt + (is_v ? 32 : 0) + n % kStages * 8;
  }
  KV_DEVICE static SharedAddress empty(bool is_v, int n) { return full(is_v, n) + 16; }
  KV_DEVICE static u32 parity(int n) { return u32(n) / kStages % 2; }
  KV_DEVICE static SharedAddress operand(bool is_v, int n) {
    return is_v ? Plan::kValuesAt + n % kStages * ((Plan::kValueDim + 63) / 64 * kPanel)
                : Plan::kKeysAt + n % kStages * ((Plan::kKeyDim + 63) / 64 * kPanel);
  }
  // If Plan::kScalesScores: the scales of the tokens of a tile of K, as factors of scores. They belong to the stage of
  // K. Four that a consumer's lane takes at once are neighbours: those of tokens 16 u + 2 c + {0, 1, 8, 9}.
  KV_DEVICE static SharedAddress score_scales(int n) {
    return Plan::kScoreScalesAt + n % kStages * (Plan::kTokens * 4);
  }
  KV_DEVICE static SharedAddress score_scale(int n, int token) {
    return score_scales(n) + (token / 16 * 16 + token % 8 / 2 * 4 + token / 8 % 2 * 2 + token % 2) * 4;
  }
  KV_DEVICE static void open() {
    KV_NO_UNROLL
    for (int n = 0; n < 2 * kStages; ++n) {
      open_barrier(full(n / kStages, n), Plan::kWarps);
      open_barrier(empty(n / kStages, n), Plan::kAlternates ? 4 : Plan::kConsumerWarps);
    }
    publish_barriers();
  }
  // Tells the consumers that this warp's part of the stage is there.
  KV_DEVICE static void fill(bool is_v, int n) {
    publish_operands();
    sync_warp();
    if (lane() == 0) arrive(full(is_v, n));
  }
  // Tells the producer that this warp has left the stage.
  KV_DEVICE static void leave(bool is_v, int n) {
    if (lane() == 0) arrive(empty(is_v, n));
  }
};

// The codebook of a section as its reads take it: bytes of halves in registers, or a table in shared memory.
template <class S>
KV_DEVICE auto entries_of() {
  if constexpr (S::kByPermutes) {
    HalfBytes<S> bytes;
    bytes.load(S::kHalfBytesAt);
    return bytes;
  } else {
    return table_of_lane<1>();
  }
}
template <class Side>
KV_DEVICE void fill_entries() {
  for_each(typename Side::Sections{}, [](auto section) {
    using S = decltype(section);
    if constexpr (S::kByPermutes)
      HalfBytes<S>::fill(S::kHalfBytesAt);
    else if constexpr (S::kOwnsTable)
      fill_table<S>();
  });
}

// RowReads holds the codes and scales that a lane loads of a row, before they are unpacked. Loads and stores of shared
// memory keep their order, so all loads of a row come ahead of the first store of its halves: a load behind a store
// would wait for all that is computed in between.
template <class S, bool kScalesScores>
struct RowReads {
  static constexpr int kReads = S::kGroups * S::kReads;
  u32 codes[kReads][S::kReadWords > 0 ? S::kReadWords : 1];  // masked sections have none
  u32 scale[kReads],    // a half; f32, where it multiplies scores or is divided by the length of the row
      minimum[kReads];  // a half, where scales multiply values; f32, where they multiply groups

  template <class Side>
  KV_DEVICE void load(SharedAddress stage, int row, u32 misalignment, int c) {
    KV_UNROLL
    for (int i = 0; i < kReads; ++i) {
      const int group = i / S::kReads, read = i % S::kReads;
      if constexpr (!S::kIsMasked)
        load_codes<S>(stage + (row & ~7) * Side::kPitch, (row & 7) * Side::kPitch + misalignment, group, read, c,
                      codes[i]);
      const SharedAddress scales = scales_of<Side, S>(stage, misalignment, row, group, c);
      if constexpr (S::kScalesValues) {
        const int at = scale_index<S>(read, c);
        scale[i] = f16_from_f32(S::scale(scales, at)), minimum[i] = S::minimum_half(scales, at);
      } else if constexpr (kScalesScores || S::kRenormalises) {
        scale[i] = bits_of(S::scale(scales, 0));
      } else if constexpr (S::kScalesGroups) {
        scale[i] = S::scale_half(scales, 0);
        if constexpr (S::kAddsMinima) minimum[i] = bits_of(S::minimum(scales, 0));
      }
    }
  }
  // The scale of a row that has one. Formats that renormalise rows divide it by the length of the row's halves.
  template <int kPairs>
  KV_DEVICE float of_row(const u32 (&h)[kPairs]) const {
    if constexpr (!S::kRenormalises) return float_of(scale[0]);
    float square = 0.f;
    add_squares(h, square, square);
    return div_rn(float_of(scale[0]), sqrt_rn(over_lanes<0, 2>(square)));
  }
  // Multiplies the halves of lane read i by their scale, in fp16.
  template <int kPairs>
  KV_DEVICE void apply(u32 (&h)[kPairs], int i) const {
    if constexpr (S::kScalesValues) {
      scale_pairs(h, scale[i] * 0x10001u, minimum[i] * 0x10001u);
    } else if constexpr (S::kRenormalises) {
      scale_pairs(h, f16_from_f32(of_row(h)) * 0x10001u, 0u);
    } else if constexpr (S::kAddsMinima) {
      scale_pairs(h, scale[i] * 0x10001u, f16_from_f32(float_of(minimum[i])) * 0x10001u);
    } else if constexpr (S::kScalesGroups) {
      KV_UNROLL
      for (int j = 0; j < kPairs; ++j) h[j] = mul_f16x2(h[j], scale[i] * 0x10001u);
    }
  }
};

// Powers of two that rows are unpacked relative to. Where K or V holds numbers beyond the range of fp16, plans have a
// form in kernels/prefill/exponents.cuh.
template <class Plan, bool kIsV>
struct TokenExponents {
  static constexpr bool kHas = false;
  KV_DEVICE static void open() {}
  KV_DEVICE static void await(int) {}
  KV_DEVICE static bool has_some(int) { return false; }
  template <int kScores>
  KV_DEVICE static void scale(float (&)[kScores], int) {}
};
// Rows that the producer unpacks relative to them; kernels/prefill/fit_rows.cuh has the other form.
template <class Plan, bool kIsV>
struct FittedRows {
  static constexpr bool kMayLeave = false;
  // Never called. NVRTC 12.0 looks the names up in any case.
  template <class Side, class S, class Reads>
  KV_DEVICE static bool take(Reads&, SharedAddress, int, u32, int, int) {
    return false;
  }
  template <class Side, class S, class Reads>
  KV_DEVICE static bool fits(const Reads&) {
    return true;
  }
};
// Exponents that stand beside stored rows; kernels/prefill/stored_exponents.cuh has the other form.
template <class Plan, bool kIsV>
struct StoredExponents {
  KV_DEVICE static void copy(const CacheSide&, const WorkTile&, int, int, int) {}
};

// Where a warp's tokens of one part go.
struct ConvertedPart {
  SharedAddress stage, operand;  // from the staged rows to the operand
  int token, n;                  // the first token in the tile; the number of the operand's stage
  const u8* first_row;
  i64 token_stride;
  float unit;  // of scales that multiply scores
};

// Converts the warp's staged tokens to rows of the operand. If K's rows have one scale each (Plan::kScalesScores), the
// scale does not multiply the halves: times `unit` it is stored in stage n for the consumers, who multiply the scores
// of the token by it in fp32. The rounding of a product with the scale would be the same for all values of a row that
// have one code, and so not average out.
//
// Returns whether a row of the lane leaves the range of halves (fit_rows.cuh). kTakesExponents: those rows are
// unpacked relative to a power of two, and the lane returns whether it has one that is not 1.
template <class Plan, class Side, bool kIsV, bool kTakesExponents>
KV_DEVICE bool convert_rows(const ConvertedPart& to) {
  constexpr bool kScalesScores = !kIsV && Plan::kScalesScores;
  using Fitted = FittedRows<Plan, kIsV>;
  const int g = lane() >> 2, c = lane() & 3;
  [[maybe_unused]] bool leaves = false;
  for_each(typename Side::Sections{}, [&](auto section) {
    using S = decltype(section);
    static_assert(S::kReadCodes % 8 == 0, "lane reads are whole chunks");
    const auto entries = entries_of<S>();
    KV_UNROLL_BY(kTakesExponents ? 1 : 2)
    for (int first = 0; first < Plan::kTile; first += 8) {
      const int row = first + g, token = to.token + row;
      // Rows that differ by a multiple of sixteen are misaligned alike; stages of eight tokens begin between them.
      const u32 misalignment = row_misalignment<Side>(to.first_row, to.token_stride, Plan::kTile % 16 ? token : row);
      RowReads<S, kScalesScores> reads;
      reads.template load<Side>(to.stage, row, misalignment, c);
      if constexpr (kTakesExponents)
        leaves |= Fitted::template take<Side, S>(reads, to.stage, row, misalignment, to.n, token);
      else if constexpr (Fitted::kMayLeave)
        leaves |= !Fitted::template fits<Side, S>(reads);
      KV_UNROLL
      for (int i = 0; i < S::kGroups * S::kReads; ++i) {
        u32 h[S::kReadCodes / 2];
        if constexpr (S::kIsMasked) {
          const int group = i / S::kReads;
          masked_row<S>(to.stage + row * Side::kPitch + misalignment + group * S::kBlockStride,
                        scales_of<Side, S>(to.stage, misalignment, row, group, c), c, h);
        } else {
          S::Read::row(reads.codes[i], h, entries);
        }
        if constexpr (kScalesScores) {
          const float scale = reads.of_row(h) * to.unit;
          if (c == 0) store_shared_u32(Stages<Plan>::score_scale(to.n, token), bits_of(scale));
        } else {
          reads.apply(h, i);
        }
        KV_UNROLL
        for (int j = 0; j < S::kReadCodes / 8; ++j)
          store_shared_u128(operand_chunk(to.operand, token, chunk_place(i * (S::kReadCodes / 8) + j, c)), h[4 * j],
                            h[4 * j + 1], h[4 * j + 2], h[4 * j + 3]);
      }
    }
  });
  return leaves;
}

// Values that no query may see are cleared once a warp's tokens are in the operand. Plans that hide tokens have an
// overload in kernels/prefill/hidden_values.cuh.
template <class Plan>
concept HidesTokens = requires {
  Plan::kClearedAt;
};
template <class Plan>
KV_DEVICE void clear_values(const WorkTile&, int, int, int) {}

// One side of a work tile, as a warp brings it: parts of kTile tokens, counted over all tiles. The copies for a stage
// of the ring are issued as soon as the warp has converted what was in it.
template <class Plan, class Side, bool kIsV>
struct SideProducer {
  static constexpr int kRing = Plan::kRing, kTile = Plan::kTile, kWarps = Plan::kWarps,
                       kParts = Plan::kTokens / (kWarps * kTile);  // of a tile
  KvTileLoader<Plan, Side> loader;
  SharedAddress ring;
  int length, end_part;
  float unit;  // of scales that multiply scores
  u32& exponents;  // a bit for each part of each stage: the warp's tokens there have powers of two

  // seen: the tokens of the sequence that the rows of the work tile see.
  KV_DEVICE SideProducer(const CacheSide& side, const WorkTile& work, const TokenRange& seen, SharedAddress at,
                         float score_unit, u32& marked)
      : loader(side, KvSplit{work.sequence, work.head, work.length, seen}, work.first_tile * kParts * kWarps + warp()),
        ring(at),
        length(work.length),
        end_part(work.end_tile * kParts),
        unit(score_unit),
        exponents(marked) {}

  // Issues the copies of a part; behind the last part there are none.
  KV_DEVICE void issue(int part) {
    if (part < end_part) {
      const int left = length - (part * kWarps + warp()) * kTile;
      const SharedAddress to = ring + part % kRing * Side::kStageBytes;
      if (left >= kTile && loader.is_aligned)
        loader.template stage<true>(to, kTile);
      else
        loader.template stage<false>(to, clamp_to(left, kTile));
      loader.advance();
    }
    copy_commit();
  }
  // Converts a part into stage n of the operands, and issues the copies of the part that takes its place.
  KV_DEVICE void take(int part, int n, const WorkTile& work) {
    const int token = (part % kParts * kWarps + warp()) * kTile;
    sync_warp();
    if (part % kParts == 0) wait_phase(Stages<Plan>::empty(kIsV, n), Stages<Plan>::parity(n) ^ 1);
    const ConvertedPart to{ring + part % kRing * Side::kStageBytes, Stages<Plan>::operand(kIsV, n), token, n,
                           loader.first_row, loader.token_stride, unit};
    const bool leaves = convert_rows<Plan, Side, kIsV, false>(to);
    if constexpr (FittedRows<Plan, kIsV>::kMayLeave) {
      const u32 own = 1u << (n % Plan::kStages * kParts + part % kParts);
      if (any(leaves || (exponents & own)))
        exponents = any(convert_rows<Plan, Side, kIsV, true>(to)) ? exponents | own : exponents & ~own;
    }
    if constexpr (kIsV) clear_values<Plan>(work, part / kParts, n, token);
    // All lanes have read the packed rows.
    if (part % kParts == kParts - 1)
      Stages<Plan>::fill(kIsV, n);
    else
      sync_warp();
    issue(part + kRing);
  }
};

// Produces packed rows. With two stages of operands, parts of K and of V take turns, so that copies of one side are on
// their way while the other is converted. With one stage, V waits until the tile before is multiplied, which needs all
// parts of K.
template <class Plan, class Args>
KV_DEVICE void produce(const Args& args) {
  using K = typename Plan::K;
  using V = typename Plan::V;
  using KeyProducer = SideProducer<Plan, K, false>;
  using ValueProducer = SideProducer<Plan, V, true>;
  constexpr int kRing = Plan::kRing, kParts = KeyProducer::kParts;
  constexpr bool kBySides = Plan::kStages == 1 && kParts > 1;
  auto works = work_poster_of<Plan>(args);
  const SharedAddress k_ring = Plan::kRingAt + warp() * (kRing * Plan::kStageBytes),
                      v_ring = k_ring + kRing * K::kStageBytes;
  WorkTile work;
  int n = 0;  // the stage of the present tile
  u32 exponents[2] = {};
  KV_NO_UNROLL
  for (int round = 0; works.begin_first(round, work); ++round) {
    works.leave(round);
    const TokenRange seen = seen_by_rows<Plan>(range_of<Plan>(args), work);
    KeyProducer k(args.k, work, seen, k_ring, args.scale_log2 * K::kUnit, exponents[0]);
    ValueProducer v(args.v, work, seen, v_ring, 1.f, exponents[1]);
    const int first_part = work.first_tile * kParts;
    KV_UNROLL
    for (int i = 0; i < 2 * kRing; ++i) {
      if (kBySides ? i < kRing : i % 2 == 0)
        k.issue(first_part + (kBySides ? i : i / 2));
      else
        v.issue(first_part + (kBySides ? i - kRing : i / 2));
    }
    KV_NO_UNROLL
    for (int tile = work.first_tile; tile < work.end_tile; ++tile, ++n) {
      if constexpr (kBySides) {
        // The first kRing parts of a side were issued before the other side's parts, the others are the last issued.
        const auto wait = [](int part) {
          if (part < kRing)
            copy_wait<2 * kRing - 1>();
          else
            copy_wait<kRing - 1>();
        };
        KV_NO_UNROLL
        for (int part = 0; part < kParts; ++part) {
          wait(part);
          k.take(tile * kParts + part, n, work);
        }
        KV_NO_UNROLL
        for (int part = 0; part < kParts; ++part) {
          wait(part);
          v.take(tile * kParts + part, n, work);
        }
      } else {
        KV_NO_UNROLL
        for (int part = tile * kParts; part < (tile + 1) * kParts; ++part) {
          copy_wait<2 * kRing - 1>();
          k.take(part, n, work);
          copy_wait<2 * kRing - 1>();
          v.take(part, n, work);
        }
      }
    }
    copy_wait<0>();  // of the groups without copies
  }
}

// Copies the warp's tokens of a tile of f16 rows to their places in an operand; tokens that do not exist become zeros.
// A step copies kStep rows, or one row in kParts parts. stored_from: the token of the first stored row.
template <class Plan, class Side>
KV_DEVICE void copy_rows(SharedAddress operand, const CacheSide& side, const WorkTile& work, int tile,
                         int stored_from) {
  constexpr int kChunks = Side::kRowBytes / 16, kLanes = kChunks < 32 ? kChunks : 32, kStep = 32 / kLanes,
                kParts = (kChunks + 31) / 32;
  const i64 stride = Side::kIsPlanar ? Side::kRowBytes : side.codes_token_stride;
  const int chunk = lane() % kLanes, step_row = lane() / kLanes, row = warp() * Plan::kTile + step_row,
            first = tile * Plan::kTokens + row;
  const u8* const rows = side.codes + work.sequence * side.codes_sequence_stride + work.head * side.codes_head_stride;
  const u8* from = rows + (first - stored_from) * stride + chunk * 16;
  const bool is_aligned = Side::kIsPlanar || ((i64)rows | stride) % 16 == 0;
  // Whether the lane copies a part of row `i` + step_row: rows of 24 chunks take 24 lanes, and the last step may have
  // fewer rows.
  const auto copies = [&](int i, int part) {
    return (kStep * kLanes == 32 || step_row < kStep) && (Plan::kTile % kStep == 0 || i + step_row < Plan::kTile) &&
           (kChunks % 32 == 0 || kParts == 1 || part * 32 + chunk < kChunks);
  };
  if (warp_uniform(is_aligned && (tile + 1) * Plan::kTokens <= work.length)) {
    KV_UNROLL
    for (int i = 0; i < Plan::kTile; i += kStep, from += kStep * stride) {
      KV_UNROLL
      for (int part = 0; part < kParts; ++part)
        if (copies(i, part))
          copy_async<16>(operand_chunk<Plan::kTokens>(operand, row + i, part * 32 + chunk), from + part * 512, 16);
    }
    return;
  }
  KV_NO_UNROLL
  for (int i = 0; i < Plan::kTile; i += kStep, from += kStep * stride) {
    const bool exists = first + i < work.length;
    KV_NO_UNROLL
    for (int part = 0; part < kParts; ++part) {
      if (!copies(i, part)) continue;
      const SharedAddress to = operand_chunk<Plan::kTokens>(operand, row + i, part * 32 + chunk);
      if (is_aligned) {
        copy_async<16>(to, exists ? from + part * 512 : rows, exists ? 16 : 0);
      } else {
        u32 words[4] = {};
        KV_UNROLL
        for (int j = 0; j < 8; ++j)
          if (exists) words[j / 2] |= u32(reinterpret_cast<const u16*>(from + part * 512)[j]) << 16 * (j % 2);
        store_shared_u128(to, words[0], words[1], words[2], words[3]);
      }
    }
  }
}

// Produces f16 rows. With two stages, one is announced as full when the copies of the next are on their way.
template <class Plan, class Args>
KV_DEVICE void produce_f16(const Args& args) {
  auto works = work_poster_of<Plan>(args);
  const int stored_from = context_of<Plan>(args).stored_from();
  WorkTile work;
  int n = 0;
  const auto fill = [&](bool is_v, int tile, int stage) {
    if (is_v) clear_values<Plan>(work, tile, stage, warp() * Plan::kTile);
    Stages<Plan>::fill(is_v, stage);
  };
  const auto next = [&](bool is_v, int tile) {
    wait_phase(Stages<Plan>::empty(is_v, n), Stages<Plan>::parity(n) ^ 1);
    const SharedAddress to = Stages<Plan>::operand(is_v, n);
    if (is_v) {
      copy_rows<Plan, typename Plan::V>(to, args.v, work, tile, stored_from);
      StoredExponents<Plan, true>::copy(args.v, work, tile, n, stored_from);
    } else {
      copy_rows<Plan, typename Plan::K>(to, args.k, work, tile, stored_from);
      StoredExponents<Plan, false>::copy(args.k, work, tile, n, stored_from);
    }
    copy_commit();
    if constexpr (Plan::kStages == 1) {
      // The next copies wait until this stage is left, so it is announced before them.
      copy_wait<0>();
      return fill(is_v, tile, n);
    }
    copy_wait<1>();
    if (is_v)
      fill(false, tile, n);
    else if (tile > work.first_tile)
      fill(true, tile - 1, n - 1);
  };
  KV_NO_UNROLL
  for (int round = 0; works.begin_first(round, work); ++round) {
    works.leave(round);
    KV_NO_UNROLL
    for (int tile = work.first_tile; tile < work.end_tile; ++tile, ++n) {
      next(false, tile);
      next(true, tile);
    }
    // Nobody waits for the next work tile before all of this one is announced.
    copy_wait<0>();
    if (Plan::kStages > 1 && work.end_tile > work.first_tile) fill(true, work.end_tile - 1, n - 1);
  }
}

}  // namespace kv
