// Test formats, one for each axis that a format file can state. Where a published format has such an axis, the test
// format has its shape. Tests of the write path use them, so that they do not depend on the contents of specs/formats.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <vector>

namespace kvjit::test {

struct AxisFormat {
  const char* name;
  std::vector<int> head_dims;
  bool is_exact;  // true: the reference codec computes in float32 step by step, so bytes must be equal;
                  // false: it sums in double, so nearly all bytes must be equal
  const char* toml;
};

inline const std::vector<AxisFormat>& axis_formats() {
  static const std::vector<AxisFormat> all = {
      {"f32_plain", {64, 128}, true, R"(block = 1
fields = [{ field = "codes" }]
codes = { kind = "plain", element = "f32" })"},
      {"f16_plain", {64, 256}, true, R"(block = 1
fields = [{ field = "codes" }]
codes = { kind = "plain", element = "f16" })"},
      {"bf16_tensor", {64}, true, R"(block = 1
fields = [{ field = "codes" }]
codes = { kind = "plain", element = "bf16" }
scale = { rule = "tensor", division = "quotient" })"},
      {"e4m3_tensor", {64, 128}, true, R"(block = 1
fields = [{ field = "codes" }]
codes = { kind = "plain", element = "e4m3" }
scale = { rule = "tensor", division = "quotient" })"},
      {"e5m2_plain", {128}, true, R"(block = 1
fields = [{ field = "codes" }]
codes = { kind = "plain", element = "e5m2" })"},
      {"e4m3b15_plain", {64, 128}, true, R"(block = 1
fields = [{ field = "codes" }]
codes = { kind = "plain", element = "e4m3b15" })"},
      {"e4m3_groups", {128, 256}, false, R"(block = 16
rotation = { name = "wht_atlas", size = "head_dim", round = "bf16" }
fields = [{ field = "codes" }, { field = "scale" }]
codes = { kind = "plain", element = "e4m3" }
scale = { rule = "amax", divisor = 448, least = 1e-12, storage = "bf16", division = "quotient" })"},
      {"f16_scaled_f16", {64}, true, R"(block = 32
fields = [{ field = "scale" }, { field = "codes" }]
codes = { kind = "plain", element = "f16" }
scale = { rule = "amax", divisor = 1024 })"},
      {"int8_twos", {64, 128}, true, R"(block = 32
fields = [{ field = "scale" }, { field = "codes" }]
codes = { kind = "uniform", bits = 8, offset = 128, max_code = 255, twos_complement = true, rounding = "half_away" }
scale = { rule = "amax", divisor = 127 }
accept = { max_relative_mse = 0.0001 })"},
      {"int4_signed_split", {64, 128}, true, R"(block = 32
fields = [{ field = "scale" }, { field = "codes", split = 16 }]
codes = { kind = "uniform", bits = 4, offset = 8, rounding = "half_up" }
scale = { rule = "signed_max", divisor = -8 }
accept = { max_relative_mse = 0.0076 })"},
      {"int4_minimum", {64, 256}, true, R"(block = 32
fields = [{ field = "scale" }, { field = "minimum" }, { field = "codes", split = 16 }]
codes = { kind = "uniform", bits = 4, offset = 0, rounding = "half_up" }
scale = { rule = "min_step", divisor = 15 }
accept = { max_relative_mse = 0.0076 })"},
      {"int5_planes", {128}, true, R"(block = 32
fields = [{ field = "scale" }, { field = "codes", low = 4, bits = 1 }, { field = "codes", bits = 4, split = 16 }]
codes = { kind = "uniform", bits = 5, offset = 16, rounding = "half_up" }
scale = { rule = "signed_max", divisor = -16 }
accept = { max_relative_mse = 0.002 })"},
      {"int6_stream", {64}, true, R"(block = 64
fields = [{ field = "codes" }, { field = "scale" }]
codes = { kind = "uniform", bits = 6, offset = 32, max_code = 63, rounding = "half_away" }
scale = { rule = "amax", divisor = 31, refine = "least_squares" }
accept = { max_relative_mse = 0.002 })"},
      {"int7_quotient_bf16", {128}, true, R"(block = 16
fields = [{ field = "codes" }, { field = "scale" }]
codes = { kind = "uniform", bits = 7, offset = 64, max_code = 127, rounding = "half_away" }
scale = { rule = "amax", divisor = 63, storage = "bf16", division = "quotient", by_stored = true }
accept = { max_relative_mse = 0.002 })"},
      {"whole_head_minimum", {64, 128}, true, R"(block = "head_dim"
fields = [{ field = "codes" }, { field = "scale" }, { field = "minimum" }]
codes = { kind = "uniform", bits = 3, offset = 0, rounding = "half_up" }
scale = { rule = "min_step", divisor = 7, division = "quotient" }
accept = { max_relative_mse = 0.1 })"},
      {"weighted_table", {64, 128}, true, R"(block = 32
fields = [{ field = "scale" }, { field = "codes", split = 16 }]
codes = { kind = "table", bits = 4 }
codebook = { unit = "scale", values = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113] }
scale = { rule = "signed_max", divisor = -127, refine = "weighted" }
accept = { max_relative_mse = 0.0065 })"},
      {"e2m1_power_of_two", {64, 128}, true, R"(block = 32
fields = [{ field = "scale" }, { field = "codes", split = 16 }]
codes = { kind = "table", bits = 4 }
codebook = { rule = "e2m1", ties = "zero" }
scale = { rule = "amax", divisor = 4, storage = "e8m0", by_stored = true, division = "quotient" }
accept = { max_relative_mse = 0.014 })"},
      {"e2m1_four_scales", {64, 128}, true, R"(block = 64
fields = [{ field = "scale" }, { field = "codes", split = 8 }]
codes = { kind = "table", bits = 4 }
codebook = { rule = "e2m1", ties = "zero" }
scale = { rule = "amax", divisor = 6, group = 16, storage = "ue4m3", by_stored = true, division = "product" }
accept = { max_relative_mse = 0.01 })"},
      {"e2m1_negative_zero", {128}, true, R"(block = 16
fields = [{ field = "codes" }, { field = "scale" }]
codes = { kind = "table", bits = 4 }
codebook = { rule = "e2m1", ties = "even", negative_zero = true }
scale = { rule = "amax", divisor = 6, storage = "e4m3", by_stored = true }
accept = { max_relative_mse = 0.01 })"},
      {"table3_nibbles", {128, 256}, false, R"(block = 64
rotation = { name = "wht_signed", size = 128 }
fields = [{ field = "codes", nibbles = true }, { field = "scale" }]
codes = { kind = "table", bits = 3 }
codebook = { rule = "lloyd_max" }
scale = { rule = "corrected_norm" }
accept = { max_relative_mse = 0.036 })"},
      {"ratio_matched", {128, 256}, false, R"(block = 16
rotation = { name = "wht_atlas", size = "head_dim", round = "bf16" }
fields = [{ field = "codes" }, { field = "scale" }]
codes = { kind = "table", bits = 3 }
codebook = { unit = "normal", symmetric = true, values = [0.2451, 0.7560, 1.3440, 2.1520], bounds = [
  0.501, 1.050, 1.748] }
scale = { rule = "amax", divisor = 2.1520, refine = "matched", storage = "e4m3", division = "ratio" }
accept = { max_relative_mse = 0.03 })"},
      {"norm_raw_dense", {128}, false, R"(block = 128
rotation = { name = "dense_517c", size = 128 }
fields = [{ field = "codes" }, { field = "scale" }]
codes = { kind = "table", bits = 4 }
codebook = { rule = "lloyd_max" }
scale = { rule = "raw_norm" }
accept = { max_relative_mse = 0.0098 })"},
      {"norm_corrected_spans", {128, 256}, false, R"(block = 32
rotation = { name = "wht_signed", size = 128 }
fields = [{ field = "scale" }, { field = "codes", bits = 2 }, { field = "codes", low = 2, bits = 1 }]
codes = { kind = "table", bits = 3 }
codebook = { rule = "lloyd_max" }
scale = { rule = "corrected_norm", span = 128 }
accept = { max_relative_mse = 0.0355 })"},
      {"norm_half_rotations", {256}, false, R"(block = 256
rotation = { name = "dense_517c", size = 128 }
fields = [{ field = "codes" }, { field = "scale" }]
codes = { kind = "table", bits = 3 }
codebook = { rule = "lloyd_max" }
scale = { rule = "least_squares" }
accept = { max_relative_mse = 0.0355 })"},
      {"norm_eight_bits", {64}, false, R"(block = 64
fields = [{ field = "scale" }, { field = "codes" }]
codes = { kind = "table", bits = 8 }
codebook = { rule = "lloyd_max" }
scale = { rule = "corrected_norm" }
accept = { max_relative_mse = 0.001 })"},
      {"one_bit_zero_bytes", {128}, false, R"(block = 64
zero_bytes = true
rotation = { name = "wht_signed", size = 64 }
fields = [{ field = "scale" }, { field = "pad", bytes = 4 }, { field = "codes" }, { field = "pad", bytes = 3 }]
codes = { kind = "table", bits = 1 }
codebook = { rule = "lloyd_max" }
scale = { rule = "raw_norm" }
accept = { max_relative_mse = 0.37 })"},
      {"whole_head_renormalised", {64, 128}, false, R"(block = "head_dim"
rotation = { name = "wht_unsigned", size = "head_dim" }
fields = [{ field = "codes" }, { field = "scale" }]
codes = { kind = "table", bits = 3 }
codebook = { rule = "lloyd_max" }
scale = { rule = "raw_norm", renormalise = true }
accept = { max_relative_mse = 0.036 })"},
      {"padded_to_128", {64, 96, 80, 192}, false, R"(block = 128
padding = "zero"
rotation = { name = "wht_signed", size = 128 }
fields = [{ field = "scale" }, { field = "codes" }]
codes = { kind = "table", bits = 4 }
codebook = { rule = "lloyd_max" }
scale = { rule = "corrected_norm" }
accept = { max_relative_mse = 0.0098 })"},
      {"constant_mask", {128, 256}, false, R"(block = 128
rotation = { name = "wht_signed", size = 128 }
fields = [{ field = "scale" }, { field = "outliers" }, { field = "codes" }, { field = "pad", bytes = 2 }]
codes = { kind = "table", bits = 2 }
codebook = { rule = "lloyd_max" }
scale = { rule = "corrected_norm" }
outliers = { mask = ["00000000", "00000000", "00004EFF", "7D00FFEB"], bits = 3, codebook = { rule = "lloyd_max" } }
accept = { max_relative_mse = 0.1 })"},
      {"stored_mask", {128, 256}, false, R"(block = 128
rotation = { name = "wht_signed", size = 128 }
fields = [{ field = "scale" }, { field = "mask" }, { field = "outliers" }, { field = "codes" }]
codes = { kind = "table", bits = 2 }
codebook = { rule = "lloyd_max" }
scale = { rule = "corrected_norm" }
outliers = { mask = "stored", count = 32, bits = 3, codebook = { rule = "lloyd_max" } }
accept = { max_relative_mse = 0.1 })"},
      {"unread_signs", {64, 128}, false, R"(block = 32
rotation = { name = "wht_tq3", size = 32 }
fields = [{ field = "codes" }, { field = "residual_signs" }, { field = "scale" }]
codes = { kind = "table", bits = 2 }
codebook = { unit = "scale", symmetric = true, values = [0.4528, 1.510], bounds = [0.9814] }
scale = { rule = "amax", divisor = 1.510 }
accept = { max_relative_mse = 0.19 })"},
      {"projected_rotated", {128, 256}, false, R"(block = 128
rotation = { name = "wht_signed", size = 128 }
fields = [{ field = "scale" }, { field = "residual_norm" }, { field = "codes" }, { field = "residual" }]
codes = { kind = "table", bits = 3 }
codebook = { rule = "lloyd_max" }
scale = { rule = "raw_norm" }
residual = { kind = "projected", norm = "length", projection = { name = "wht_qjl_1042" } }
accept = { max_relative_mse = 0.021 })"},
      {"projected_original", {256}, false, R"(block = 256
rotation = { name = "dense_517c", size = 256 }
fields = [{ field = "codes" }, { field = "residual" }, { field = "scale" }, { field = "residual_norm" }]
codes = { kind = "table", bits = 2 }
codebook = { rule = "lloyd_max" }
scale = { rule = "raw_norm" }
residual = { kind = "projected", domain = "original", norm = "length", projection = { name = "gaussian_517c" } }
accept = { max_relative_mse = 0.1 })"},
      {"direct_signs", {64, 128}, false, R"(block = 64
zero_bytes = true
rotation = { name = "wht_amesianx", size = 64 }
fields = [{ field = "scale" }, { field = "residual_norm" }, { field = "codes" }, { field = "residual" }]
codes = { kind = "table", bits = 3 }
codebook = { rule = "lloyd_max" }
scale = { rule = "raw_norm" }
residual = { kind = "direct", norm = "mean", relative = false, normal_units = true }
accept = { max_relative_mse = 0.02 })"},
      {"int8_wide_scale", {64}, true, R"(block = "head_dim"
fields = [{ field = "codes" }, { field = "scale" }]
codes = { kind = "uniform", bits = 8, offset = 128, twos_complement = true, rounding = "half_away" }
scale = { rule = "amax", divisor = 127, least = 1e-6, storage = "f32" }
accept = { max_relative_mse = 0.0001 })"},
      {"e4m3_wide_groups", {128}, true, R"(block = 64
fields = [{ field = "codes" }, { field = "scale" }]
codes = { kind = "plain", element = "e4m3" }
scale = { rule = "amax", divisor = 448, group = 32, storage = "f32", division = "quotient" })"},
      {"int4_half_even", {64}, false, R"(block = 64
rotation = { name = "wht_unsigned", size = 64 }
fields = [{ field = "codes" }, { field = "scale" }]
codes = { kind = "uniform", bits = 4, offset = 8, twos_complement = true, rounding = "half_even" }
scale = { rule = "amax", divisor = 7, by_stored = true }
accept = { max_relative_mse = 0.012 })"},
      {"int6_split_planes", {128}, true, R"(block = 32
fields = [{ field = "scale" }, { field = "codes", low = 4, bits = 2, split = 8, order = [0, 2, 1, 3] },
          { field = "codes", bits = 4, split = 16 }]
codes = { kind = "uniform", bits = 6, offset = 32, rounding = "half_up" }
scale = { rule = "signed_max", divisor = -32 }
accept = { max_relative_mse = 0.0005 })"},
      {"int3_split_bits", {64}, true, R"(block = 32
fields = [{ field = "scale" }, { field = "codes", low = 2, bits = 1, split = 4 },
          { field = "codes", bits = 2, split = 8 }]
codes = { kind = "uniform", bits = 3, offset = 4, rounding = "half_up" }
scale = { rule = "signed_max", divisor = -4 }
accept = { max_relative_mse = 0.033 })"},
      {"e2m1_over_tensor", {128}, true, R"(block = "head_dim"
fields = [{ field = "codes" }, { field = "scale" }]
codes = { kind = "table", bits = 4 }
codebook = { rule = "e2m1", ties = "even", negative_zero = true }
scale = { rule = "amax", divisor = 6, over = "tensor", group = 16, storage = "e4m3", by_stored = true }
accept = { max_relative_mse = 0.01 })"},
      {"e2m1_over_heads", {128}, true, R"(block = "head_dim"
fields = [{ field = "codes" }, { field = "scale" }]
codes = { kind = "table", bits = 4 }
codebook = { rule = "e2m1", ties = "even", negative_zero = true }
scale = { rule = "amax", divisor = 6, over = "head", group = 16, storage = "e4m3", by_stored = true }
accept = { max_relative_mse = 0.01 })"},
      {"e4m3_per_head", {96}, true, R"(block = 1
fields = [{ field = "codes" }]
codes = { kind = "plain", element = "e4m3" }
scale = { rule = "tensor", per = "head", division = "quotient" }
accept = { max_relative_mse = 0.00073 })"},
      {"e2m1_search", {64}, true, R"(block = 32
fields = [{ field = "codes" }, { field = "scale" }]
codes = { kind = "table", bits = 4 }
codebook = { rule = "e2m1", ties = "zero" }
scale = { rule = "amax", search = [6, 4, 5], group = 16, storage = "e4m3", rounding = "up", by_stored = true }
accept = { max_relative_mse = 0.01 })"},
      {"e2m1_nearest_power", {128}, true, R"(block = 32
fields = [{ field = "codes" }, { field = "scale" }]
codes = { kind = "table", bits = 4 }
codebook = { rule = "e2m1", ties = "lower" }
scale = { rule = "amax", factor = 0.156, storage = "e8m0", rounding = "nearest", by_stored = true }
accept = { max_relative_mse = 0.02 })"},
      {"e4m3_power_above", {64}, true, R"(block = 32
fields = [{ field = "codes" }, { field = "scale" }]
codes = { kind = "plain", element = "e4m3" }
scale = { rule = "amax", divisor = 448, least = 2.2e-7, storage = "e8m0", rounding = "up", by_stored = true })"},
      {"int4_zero_point", {64, 128}, false, R"(block = "head_dim"
rotation = { name = "wht_vllm_int4", size = "power_of_two", normalise = false }
fields = [{ field = "codes" }, { field = "scale" }]
codes = { kind = "uniform", bits = 4, offset = 0, rounding = "half_away" }
scale = { rule = "zero_point", divisor = 15, least = 1e-6, storage = "f32" }
accept = { max_relative_mse = 0.012 })"},
      {"int8_zero_point", {96}, true, R"(block = 32
fields = [{ field = "scale" }, { field = "codes" }]
codes = { kind = "uniform", bits = 8, offset = 0, rounding = "half_away" }
scale = { rule = "zero_point", divisor = 255, storage = "f32" }
accept = { max_relative_mse = 0.0001 })"},
      {"grid8", {64}, true, R"(block = 64
fields = [{ field = "scale" }, { field = "codes" }]
codes = { kind = "table", bits = 8 }
codebook = { rule = "grid" }
scale = { rule = "amax", divisor = 1 }
accept = { max_relative_mse = 0.0001 })"},
      {"table3_unbiased", {128}, false, R"(block = "power_of_two"
rotation = { name = "wht_octave", size = "power_of_two" }
fields = [{ field = "codes", bits = 2, split = 4 }, { field = "codes", low = 2, bits = 1, split = 4 },
          { field = "scale" }]
codes = { kind = "table", bits = 3 }
codebook = { unit = "steps", steps_per_sigma = 59, symmetric = true, values = [14, 45, 79, 127], ties = "lower" }
scale = { rule = "unbiased" }
accept = { max_relative_mse = 0.036 })"},
      {"trellis2_factor", {64, 128}, false, R"(block = 64
fields = [{ field = "codes" }, { field = "scale" }]
codes = { kind = "trellis", state_bits = 7, step_bits = 2 }
codebook = { unit = "normal", values = [
  -1.79, -1.46, -0.86, -1.01, -2.39, -1.97, -1.18, -0.74, -2.25, -0.71, -1.43, -1.69, -0.83, -0.52, -1.65, -1.44,
  -1.08, -1.37, -0.33, -0.93, -2.22, -1.98, -1.08, -0.89, -1.04, -1.93, -1.66, -0.93, -0.73, -1.25, -1.47, -1.83,
  -0.83, -0.54, 0.07, -0.12, -1.25, -0.92, -0.34, 0.14, -1.10, 0.25, -0.49, -0.73, 0.07, 0.34, -0.66, -0.41,
  -0.22, -0.36, 0.47, -0.01, -0.90, -0.95, -0.17, 0.06, -0.10, -0.71, -0.73, 0.06, 0.23, -0.28, -0.48, -0.71,
  -0.11, 0.14, 0.89, 0.50, -0.42, -0.22, 0.37, 0.80, -0.40, 0.91, 0.24, 0.02, 0.81, 1.32, -0.01, 0.25,
  0.50, 0.32, 1.37, 0.66, -0.17, -0.27, 0.62, 0.79, 0.57, -0.00, -0.05, 0.88, 1.08, 0.42, 0.14, 0.03,
  0.82, 1.02, 1.90, 1.45, 0.41, 0.67, 1.30, 1.73, 0.52, 2.02, 1.20, 0.91, 1.54, 2.28, 0.79, 1.03,
  1.50, 1.18, 2.46, 1.40, 0.54, 0.49, 1.74, 1.98, 1.48, 0.85, 0.99, 2.08, 1.99, 1.37, 0.91, 0.93] }
scale = { rule = "least_squares", factor = 1.02 }
accept = { max_relative_mse = 0.085 })"},
      {"trellis2_circle", {64, 128}, false, R"(block = 64
fields = [{ field = "scale" }, { field = "codes" }]
codes = { kind = "trellis", state_bits = 7, step_bits = 2, tail_biting = true }
codebook = { unit = "steps", steps_per_sigma = 50, values = [
  -90, -73, -43, -51, -120, -99, -59, -37, -113, -36, -86, -85, -42, -27, -83, -72,
  -54, -69, -17, -47, -111, -61, -54, -45, -52, -97, -83, -47, -37, -63, -74, -92,
  -42, -27, 4, -6, -63, -46, -17, 7, -55, 13, -25, -37, 4, 17, -33, -21,
  -11, -18, 24, 0, -45, -48, -9, 3, -5, -36, -37, 3, -11, -14, -24, -36,
  -6, 7, 45, 25, -21, -11, 19, 40, -20, 46, 12, 1, 41, 66, -1, 13,
  25, 16, 69, 18, -9, -14, 31, 41, 29, 0, -3, 44, 54, 21, 7, 2,
  41, 51, 95, 73, 21, 31, 65, 87, 26, 101, 60, 52, 77, 114, 40, 52,
  75, 59, 123, 70, 27, 25, 87, 99, 74, 43, 50, 104, 100, 69, 46, 47] }
scale = { rule = "corrected_norm" }
accept = { max_relative_mse = 0.087 })"},
      {"vectors", {64, 192}, true, R"(block = 64
fields = [{ field = "scale" }, { field = "codes" }]
codes = { kind = "vector" }
codebook = { lattice = "e8", unit = "scale", values = [
  0, 0.1, 0.125, 0.16, 0.2, 0.25, 0.32, 0.4, 0.5, 0.63, 0.8, 1, 1.26, 1.6, 2, 2.5
], bounds = [0.25, 0.63, 0.8, 1, 1.26, 1.6, 2, 2.5, 3.2, 4, 5, 6.3, 8, 10, 12.6] }
scale = { rule = "amax", divisor = 7, group = 32 }
accept = { max_relative_mse = 0.24 })"},
      {"segments_rotated", {96, 160}, false, R"(rotation = { name = "wht_unsigned", size = 32 }
fields = [{ field = "codes" }, { field = "codes", segment = 1 }, { field = "scale", segment = 1 }, { field = "scale" },
          { field = "pad", bytes = 2 }]
accept = { max_relative_mse = 0.037 }
[[segments]]
channels = [0, 32]
codes = { kind = "table", bits = 4 }
codebook = { unit = "steps", steps_per_sigma = 46, symmetric = true, values = [6, 18, 30, 43, 58, 74, 95, 126] }
scale = { rule = "unbiased" }
[[segments]]
channels = [32, "head_dim"]
fields = [{ field = "codes", bits = 2, split = 4 }, { field = "codes", low = 2, bits = 1, split = 4 },
          { field = "scale" }]
codes = { kind = "table", bits = 3 }
codebook = { unit = "normal", symmetric = true, values = [0.245, 0.756, 1.344, 2.152] }
scale = { rule = "corrected_norm", group = 32 })"},
      {"segments", {96, 64}, true, R"(fields = [{ field = "codes" }, { field = "codes", segment = 1 },
          { field = "scale", rows = 2 }, { field = "codes", segment = 2 }, { field = "scale", segment = 1 },
          { field = "pad", bytes = 4 }, { field = "pad", bytes = 2, plane = "scales" }]
accept = { max_relative_mse = 0.004 }
[[segments]]
channels = [0, 32]
codes = { kind = "table", bits = 4 }
codebook = { rule = "e2m1", ties = "even" }
scale = { rule = "amax", divisor = 6, group = 8, storage = "e4m3", by_stored = true }
[[segments]]
channels = [32, 64]
block = 32
codes = { kind = "uniform", bits = 8, offset = 128, twos_complement = true, rounding = "half_away" }
scale = { rule = "amax", divisor = 127, storage = "f32" }
[[segments]]
channels = [64, 96]
block = 1
codes = { kind = "plain", element = "bf16" })"},
      {"norm_epsilon", {64}, false, R"(block = "head_dim"
rotation = { name = "wht_unsigned", size = "head_dim" }
fields = [{ field = "codes" }, { field = "scale" }]
codes = { kind = "table", bits = 3 }
codebook = { unit = "normal", symmetric = true, ties = "lower", values = [0.245, 0.756, 1.343, 2.15] }
scale = { rule = "raw_norm", epsilon = 1e-8, renormalise = true }
accept = { max_relative_mse = 0.036 })"},
  };
  return all;
}

}  // namespace kvjit::test
