// Quality: what storing keys and values in a format costs, in double precision over the reference codec. No kernel runs.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <vector>

#include "generator/calibration.hpp"
#include "generator/format.hpp"
#include "tools/samples.hpp"

namespace kvjit {

// How one side is stored: its values times the channel scales of the calibration, if any, through the format.
struct StoredSide {
  Format format;
  const Calibration* calibration = nullptr;

  std::string name() const { return format.name + (calibration ? "+" + calibration->name : ""); }
};

struct Pair {
  StoredSide k, v;

  std::string name() const { return k.name() == v.name() ? k.name() : k.name() + " / " + v.name(); }
};

// l = q.k / sqrt(d): logits; out: the output of attention; ^: over the decoded cache.
struct Quality {
  double k_bits = 0, v_bits = 0;  // stored bits a value
  double k_mse = 0, v_mse = 0;    // sum (x^ - x)^2 / sum x^2
  double logit_error = 0;         // sqrt(sum (l^ - l)^2 / sum l^2), over the logits that queries see
  double logit_max = 0;           // max |l^ - l|
  double cosine = 0;              // mean over queries of cos(out^, out)
  double output_error = 0;        // |out^ - out| / |out|
  double bits() const { return (k_bits + v_bits) / 2; }
};

// "" if rows of head_dim values can be stored, else the reason.
std::string misfit(const StoredSide& side, long long head_dim);

// Fails with unsupported when a side does not fit or its numbers overflow: a row to be listed with the reason.
Result<Quality> measure_quality(const Sample& sample, const Pair& pair);

// One side alone: rows [heads][rows][dim] after encode and decode.
Result<std::vector<double>> stored_and_back(const StoredSide& side, const Heads& x, double& bits);

}  // namespace kvjit
