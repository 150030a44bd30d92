// The online softmax of prefill. A block of 64 query rows has the scores S of a tile of 128 tokens in registers, 64 a
// lane, and turns them into probabilities relative to a reference maximum of each row:
//
//   P = 2^(S scale - reference maximum)
//
// Any reference that keeps P within fp16 gives the same output, so it need not be the maximum of all scores so far. It
// is set by the first tile of a work tile, and the maximum of later tiles is not computed at all: their probabilities
// are, in fp32, and the sum of a lane's probabilities, which the denominator needs anyway, tells whether one of them is
// too large for fp16. That is rare, because its exponent exceeds all of the first tile by 10 or more. Then the
// reference rises by a whole number, so probabilities and sums are multiplied by a power of two. If fp32 does not hold
// a probability either, the scores are multiplied once more (multiply_keys_by_mma).
//
// So the exponentials, 64 a lane at a rate of one in eight cycles, wait for nothing, and what else the softmax computes
// is done beside them: the scale of each token is a factor of the multiply-add ahead of the exponential.
//
// Plans that track the maximum (Plan::kTracksMaximum) compute it for each tile, and the reference moves when a score is
// more than kSlack above it. They have one stage of K and have left it before the softmax, or features change their
// scores.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/prefill/producer.cuh"
#include "kernels/prefill/rows.cuh"

namespace kv {

constexpr float kMostLaneSum = 32768.f;  // of a lane's probabilities in a row of a tile; fp16 holds up to 65504
constexpr float kMostFinite = 0x1p126f;  // of a lane's sum that raise_reference takes
constexpr float kSlack = 8.f;            // log2 of the largest probability where maxima are computed
constexpr float kNoScore = -1e30f;       // reference maximum of a row that has seen no token

// The factor of all scores: scores times the factor are exponents of 2. Factors are taken in the order of scores.
struct UnitFactor {
  float unit;
  KV_DEVICE float operator()(int) const { return unit; }
  KV_DEVICE void pass(int) {}
};

// The factors of a tile's tokens, their scales times the unit, from the stage of K. Sixteen bytes are four factors and
// serve eight scores. The first are loaded while the products run, the others kAhead loads ahead of their use.
template <class Plan>
struct TokenFactors {
  static constexpr int kEarly = 1, kAhead = 3;  // loads: ahead of the wait for the products, and ahead of their use
  u32 factors[kAhead][4];
  SharedAddress at;
  int step;

  KV_DEVICE explicit TokenFactors(int n) { open(Stages<Plan>::score_scales(n) + (lane() & 3) * 16, 64); }
  // Multiplies the scores. Then all factors are 1.
  KV_DEVICE void multiply(float (&s)[64]) {
    KV_UNROLL
    for (int i = 0; i < 64; ++i) {
      s[i] *= (*this)(i);
      pass(i);
    }
    open(Plan::kOnesAt, 0);
  }
  KV_DEVICE float operator()(int i) {
    if (i == 0) {
      KV_UNROLL
      for (int u = kEarly; u < kAhead; ++u) load(u);
    }
    return float_of(factors[i / 8 % kAhead][i / 4 % 2 * 2 + i % 2]);
  }
  // The factor of score i has been used.
  KV_DEVICE void pass(int i) {
    if (i % 8 == 7 && i / 8 + kAhead < 8) load(i / 8 + kAhead);
  }
  KV_DEVICE static void fill_ones() {
    if (thread() < 4) store_shared_u32(Plan::kOnesAt + thread() * 4, bits_of(1.f));
  }

 private:
  KV_DEVICE void open(SharedAddress from, int bytes) {
    at = from, step = bytes;
    KV_UNROLL
    for (int u = 0; u < kEarly; ++u) load(u);
  }
  KV_DEVICE void load(int u) {
    load_staged_u128(factors[u % kAhead], at);
    at += step;
  }
};
template <class Plan>
KV_DEVICE auto score_factors(int n, float unit) {
  if constexpr (Plan::kScalesScores)
    return TokenFactors<Plan>(n);
  else
    return UnitFactor{unit};
}

// The softmax of the lane's rows g and g + 8.
struct RowSoftmax {
  float reference_max[2],  // base 2
      sum[2];              // the lane's partial denominator, over its own columns

  KV_DEVICE void reset() {
    KV_UNROLL
    for (int h = 0; h < 2; ++h) reference_max[h] = kNoScore, sum[h] = 0.f;
  }
  // Whether a row of the warp has seen no token so far.
  KV_DEVICE bool has_no_reference() const { return any(reference_max[0] == kNoScore || reference_max[1] == kNoScore); }
  // Whether a row has a score that is more than kSlack above the reference. Scores times `unit` are exponents of 2.
  template <int kScores>
  KV_DEVICE bool is_passed(const float (&s)[kScores], float unit) const {
    float most[2];
    largest(s, unit, most);
    return is_passed_by(most);
  }
  KV_DEVICE bool is_passed_by(const float (&most)[2]) const {
    return any(most[0] > reference_max[0] + kSlack || most[1] > reference_max[1] + kSlack);
  }
  // Raises the references to the largest scores, and rescales the sums so far to them.
  template <int kScores, int kSums>
  KV_DEVICE void move_reference(const float (&s)[kScores], float (&o)[kSums], float unit) {
    float most[2];
    largest_of_rows(s, unit, most);
    raise_to(most, o);
  }
  // The largest scores of the lane's rows among the tokens that the warp has.
  template <int kScores>
  KV_DEVICE static void largest_of_rows(const float (&s)[kScores], float unit, float (&most)[2]) {
    largest(s, unit, most);
    KV_UNROLL
    for (int h = 0; h < 2; ++h) {
      most[h] = larger(most[h], shfl_xor(most[h], 1));
      most[h] = larger(most[h], shfl_xor(most[h], 2));
    }
  }
  template <int kSums>
  KV_DEVICE void raise_to(const float (&most)[2], float (&o)[kSums]) {
    float rescale_factor[2];
    KV_UNROLL
    for (int h = 0; h < 2; ++h) {
      const float raised = larger(most[h], reference_max[h]);
      rescale_factor[h] = exp2_fast(reference_max[h] - raised);
      reference_max[h] = raised, sum[h] *= rescale_factor[h];
    }
    KV_UNROLL
    for (int i = 0; i < kSums; ++i) o[i] *= rescale_factor[i / 2 % 2];
  }
  // Turns scores into probabilities in fp32, and returns the lane's sums of them for both rows.
  template <int kScores, class Factors>
  KV_DEVICE void exponentials(float (&s)[kScores], float (&sums)[2], Factors& factors) const {
    float part[4] = {};
    KV_UNROLL
    for (int i = 0; i < kScores; ++i) {
      s[i] = exp2_fast(fma_rn(s[i], factors(i), -reference_max[i / 2 % 2]));
      factors.pass(i);
      part[i % 4] += s[i];
    }
    sums[0] = part[0] + part[1], sums[1] = part[2] + part[3];
  }
  // Raises the reference of a row that has a sum above kMostLaneSum, until its sums are below 2. False if a sum is too
  // large or no number.
  template <int kSums>
  KV_DEVICE bool raise_reference(float (&s)[64], float (&sums)[2], float (&o)[kSums]) {
    if (any(!(sums[0] < kMostFinite && sums[1] < kMostFinite))) return false;
    float factor[2];
    KV_UNROLL
    for (int h = 0; h < 2; ++h) {
      float most = larger(sums[h], shfl_xor(sums[h], 1));
      most = larger(most, shfl_xor(most, 2));
      const int exponent = most > kMostLaneSum ? int(bits_of(most) >> 23) - 127 : 0;
      factor[h] = float_of(u32(127 - exponent) << 23);
      reference_max[h] += float(exponent), sum[h] *= factor[h], sums[h] *= factor[h];
    }
    KV_UNROLL
    for (int i = 0; i < 64; ++i) s[i] *= factor[i / 2 % 2];
    KV_UNROLL
    for (int i = 0; i < kSums; ++i) o[i] *= factor[i / 2 % 2];
    return true;
  }

 private:
  template <int kScores>
  KV_DEVICE static void largest(const float (&s)[kScores], float unit, float (&most)[2]) {
    float part[4] = {s[0], s[1], s[2], s[3]};
    KV_UNROLL
    for (int i = 4; i < kScores; ++i) part[i % 4] = larger(part[i % 4], s[i]);
    most[0] = larger(part[0], part[1]) * unit, most[1] = larger(part[2], part[3]) * unit;
  }
};
// No lane of the warp has a probability that fp16 does not hold. False for sums that are no numbers, too.
KV_DEVICE bool are_halves(const float (&sums)[2]) {
  return !any(!(sums[0] <= kMostLaneSum && sums[1] <= kMostLaneSum));
}

// Multiplies Q K^T of the warp's 16 rows by mma.sync: the other warps of its group need not take part, and the sums are
// in the same places as those of wgmma. q, k: both operands. The loop over steps is not unrolled: where consumers
// multiply by wgmma this is rare.
template <int kSteps>
KV_DEVICE void multiply_keys_by_mma(float (&s)[64], SharedAddress q, SharedAddress k) {
  // Lane 8 m + r gives the address of row r of matrix m. It is hidden, so that the loop over tiles holds no part of it
  // in registers.
  const int lane = int(hide_from_optimizer(u32(kv::lane()))), row = lane % 8, matrix = lane / 8;
  KV_UNROLL
  for (int i = 0; i < 64; ++i) s[i] = 0.f;
  KV_NO_UNROLL
  for (int step = 0; step < kSteps; ++step) {
    u32 a[4], b[4];  // b: two blocks of eight tokens
    load_matrices(a, q + row_operand_place(warp() % 4 * 16 + matrix % 2 * 8 + row, step * 2 + matrix / 2));
    KV_UNROLL
    for (int block = 0; block < 16; block += 2) {
      load_matrices(b, operand_chunk(k, (block + matrix / 2) * 8 + row, step * 2 + matrix % 2));
      KV_UNROLL
      for (int j = 0; j < 2; ++j) {
        float d[4];
        KV_UNROLL
        for (int i = 0; i < 4; ++i) d[i] = s[(block + j) * 4 + i];
        mma_16x8x16(d, a[0], a[1], a[2], a[3], b[2 * j], b[2 * j + 1]);
        KV_UNROLL
        for (int i = 0; i < 4; ++i) s[(block + j) * 4 + i] = d[i];
      }
    }
  }
}

}  // namespace kv
