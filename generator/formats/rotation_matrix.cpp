// Computes the matrices of dense and block rotations: the Q of a Householder QR of a Gaussian matrix, the Gaussian
// matrix itself, and blocks of angles or quaternions. It also implements Matrix, which computes its numbers once.
// SPDX-License-Identifier: MIT
#include <atomic>
#include <cmath>
#include <mutex>

#include "generator/base/random.hpp"
#include "generator/formats/rotation.hpp"

namespace kvjit {
namespace {

// A column-major matrix.
using Columns = std::vector<double>;

Columns transpose(const Columns& from, int n) {
  Columns to(from.size());
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) to[std::size_t(j * n + i)] = from[std::size_t(i * n + j)];
  return to;
}

// The reflection I - tau v v^T of the entries of a column from `first` on.
struct Reflection {
  int first = 0;
  double tau = 0;  // 0: the identity
  std::vector<double> v;

  void apply(double* column) const {
    double* x = column + first;
    double sums[4] = {};  // four chains of additions; a single one would wait for each addition to end
    std::size_t i = 0;
    for (; i + 4 <= v.size(); i += 4)
      for (std::size_t chain = 0; chain < 4; ++chain) sums[chain] += v[i + chain] * x[i + chain];
    for (; i < v.size(); ++i) sums[0] += v[i] * x[i];
    const double factor = tau * (sums[0] + sums[1] + (sums[2] + sums[3]));
    for (i = 0; i < v.size(); ++i) x[i] -= factor * v[i];
  }
};

}  // namespace

struct Matrix::Shared {
  std::function<std::vector<double>()> make;
  std::once_flag once;
  std::atomic<bool> is_made = false;
  std::vector<double> numbers;
};

Matrix::Matrix(std::vector<double> numbers) : shared_(std::make_shared<Shared>()) {
  shared_->numbers = std::move(numbers);
  shared_->is_made = true;
}

Matrix::Matrix(std::function<std::vector<double>()> make) : shared_(std::make_shared<Shared>()) {
  shared_->make = std::move(make);
}

const std::vector<double>& Matrix::numbers() const {
  static const std::vector<double> none;
  if (!shared_) return none;
  if (!shared_->is_made)
    std::call_once(shared_->once, [this] {
      shared_->numbers = shared_->make();
      shared_->is_made = true;
    });
  return shared_->numbers;
}

bool Matrix::is_made() const { return !shared_ || shared_->is_made; }

std::vector<double> gaussian_matrix(std::uint64_t seed, int n) {
  return transpose(splitmix_normals(seed, std::size_t(n) * std::size_t(n)), n);
}

std::vector<double> householder_matrix(std::uint64_t seed, int n) {
  const auto column = [n](Columns& a, int j) { return &a[std::size_t(j) * std::size_t(n)]; };
  Columns a = splitmix_normals(seed, std::size_t(n) * std::size_t(n));
  std::vector<Reflection> reflections;
  std::vector<double> diagonal_sign;  // signs of the diagonal of R
  for (int k = 0; k < n; ++k) {
    const double *x = column(a, k), alpha = x[k];
    double square = 0;
    for (int i = k; i < n; ++i) square += x[i] * x[i];
    const double sign = alpha >= 0 ? 1 : -1;
    Reflection r{k, 0, {x + k, x + n}};
    r.v[0] = alpha + sign * std::sqrt(square);
    const double v_square = r.v[0] * r.v[0] + (square - alpha * alpha);
    if (v_square >= 1e-30) r.tau = 2 / v_square;
    for (int j = k + 1; j < n; ++j) r.apply(column(a, j));
    reflections.push_back(std::move(r));
    diagonal_sign.push_back(-sign);
  }
  Columns q(a.size(), 0.0);
  for (int j = 0; j < n; ++j) column(q, j)[j] = 1;
  for (int k = n - 1; k >= 0; --k)
    for (int j = k; j < n; ++j)
      reflections[std::size_t(k)].apply(column(q, j));  // earlier columns are still those of the identity
  for (int j = 0; j < n; ++j)
    for (int i = 0; i < n; ++i) column(q, j)[i] *= diagonal_sign[std::size_t(j)];
  return transpose(q, n);
}

int block_width(BlockMap map) { return map == BlockMap::givens ? 2 : map == BlockMap::quaternion ? 4 : 3; }

std::vector<double> block_matrix(BlockMap map, const std::vector<double>& parameters, int size) {
  const int width = block_width(map), per_block = map == BlockMap::givens ? 1 : 4, whole = size / width * width;
  std::vector<double> matrix;
  const auto row = [&](std::initializer_list<double> entries) { matrix.insert(matrix.end(), entries); };
  for (int block = 0; block < size / width; ++block) {
    const double* p = &parameters[std::size_t(block * per_block)];
    if (map == BlockMap::givens) {
      const double c = std::cos(p[0]), s = std::sin(p[0]);
      row({c, -s});
      row({s, c});
      continue;
    }
    const double norm = std::hypot(std::hypot(p[0], p[1]), std::hypot(p[2], p[3]));
    const double w = p[0] / norm, x = p[1] / norm, y = p[2] / norm, z = p[3] / norm;
    if (map == BlockMap::quaternion) {  // q v
      row({w, -x, -y, -z});
      row({x, w, -z, y});
      row({y, z, w, -x});
      row({z, -y, x, w});
    } else {  // q v q*
      row({1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)});
      row({2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)});
      row({2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)});
    }
  }
  for (int i = whole; i < size; ++i)
    for (int k = 0; k < width; ++k) matrix.push_back(i - whole == k ? 1 : 0);
  return matrix;
}

}  // namespace kvjit
