// plan_bulk_places: where bulk kernels over tiles find the codes and scales of a format, and how codes are packed.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <numeric>

#include "generator/kernels/codec/plan.hpp"

namespace kvjit {
namespace {

constexpr int kLaneValues = kBulkGroup / 4;  // of a group, which four lanes share

// Whether the field is a bit stream of bits low .. low + bits - 1 of each code.
bool is_bit_stream(const Field& field, int low, int bits) {
  return field.low == low && field.bits == bits && !field.split;
}

std::optional<BulkPacking> packing_of(const std::vector<const Field*>& fields, int bits) {
  if (fields.size() == 1 && fields[0]->is_nibbles) return BulkPacking::nibbles;
  if (fields.size() == 1 && is_bit_stream(*fields[0], 0, bits)) return BulkPacking::stream;
  if (fields.size() == 2 && bits == 3 && is_bit_stream(*fields[0], 0, 2) && is_bit_stream(*fields[1], 2, 1))
    return BulkPacking::split;
  return std::nullopt;
}

}  // namespace

int BulkPlaces::table_bytes(int bits) const { return 256 << 2 * (packing == BulkPacking::stream ? bits : 4); }

const char* plan_bulk_places(const Format& f, bool is_planar, BulkPlaces& places) {
  if (f.block != kBulkGroup && f.block != kLaneValues) return "blocks of 128 or 32";
  std::vector<const Field*> codes;
  for (const Field& field : f.fields) {
    if (field.kind == FieldKind::codes) codes.push_back(&field);
    if (field.kind != FieldKind::pad || is_planar) continue;
    if (places.pad_bytes > 0 || field.bytes > 4) return "padding of up to 4 bytes";
    places.pad_at = field.at, places.pad_bytes = field.bytes;
  }
  const auto place = [&](const Field& field) { return is_planar ? field.plane_at : field.at; };
  const int bits = f.codes().bits, blocks = kBulkGroup / f.block;
  const auto packing = packing_of(codes, bits);
  const bool is_by_lanes = blocks > 1;
  if (!packing || (is_by_lanes && *packing == BulkPacking::nibbles))
    return "codes in one bit stream, or low pairs and top bits";
  const int code_stride = is_planar ? f.code_bytes : f.block_bytes,
            scale_stride = is_planar ? f.scale_bytes : f.block_bytes;
  places.packing = *packing;
  places.codes_at = place(*codes[0]), places.scale_at = place(*f.field(FieldKind::scale));
  places.code_stride = blocks * code_stride, places.scale_stride = blocks * scale_stride;
  places.lane_scale_stride = is_by_lanes ? scale_stride : 0;
  // From lane to lane: the bytes of a lane are neighbours, but in a field of nibbles the words of four lanes alternate.
  const auto lane_stride = [&](const Field& field) {
    return is_by_lanes ? code_stride : field.is_nibbles ? 4 : kLaneValues * field.bits / 8;
  };
  places.lane_stride = lane_stride(*codes[0]);
  if (*packing == BulkPacking::split) {
    places.high_at = place(*codes[1]) - places.codes_at;
    places.high_stride = lane_stride(*codes[1]) - places.lane_stride;
  }
  for (const int at : {places.code_stride, places.codes_at, places.lane_stride, places.high_at, places.high_stride})
    places.unit = std::gcd(places.unit, at);
  if (!is_planar) places.unit = std::min(places.unit, 2);  // rows may begin at any even address
  const bool is_even = places.scale_at % 2 == 0 && places.scale_stride % 2 == 0 && places.lane_scale_stride % 2 == 0;
  return places.unit < 2 || !is_even ? "codes and scales at even addresses" : nullptr;
}

}  // namespace kvjit
