// Loads a program's kernels: those of attention in create(), every other one at the first call that needs it.
// SPDX-License-Identifier: MIT
#include "runtime/launch/program.hpp"

#include <fmt/format.h>

namespace kvjit {

Result<std::shared_ptr<Program>> Program::create(std::shared_ptr<Context> context, ProgramSource source,
                                                 std::stop_token stop) {
  return create(std::move(context), std::make_shared<const ProgramSource>(std::move(source)), std::move(stop));
}

Result<std::shared_ptr<Program>> Program::create(std::shared_ptr<Context> context,
                                                 std::shared_ptr<const ProgramSource> source, std::stop_token stop) {
  const auto program = std::make_shared<Program>(std::move(context), std::move(source));
  for (const Role role : program->roles_of_attention())
    if (program->source_.kernels.count(role)) KV_CHECK(program->kernel(role, stop));
  return program;
}

Result<const KernelRecord*> Program::kernel(Role role, std::stop_token stop) const {
  const std::lock_guard lock(mutex_);
  if (const auto entry = kernels_.find(role); entry != kernels_.end()) return &entry->second;
  const auto source = source_.kernels.find(role);
  if (source == source_.kernels.end())
    return fail(Code::unsupported, fmt::format("program {} has no {} kernel", source_.id, to_string(role)));
  KV_TRY(record, context_->get(source->second, stop));
  return &kernels_.emplace(role, std::move(record)).first->second;
}

const KernelRecord* Program::record(Role role) const {
  const std::lock_guard lock(mutex_);
  const auto entry = kernels_.find(role);
  return entry == kernels_.end() ? nullptr : &entry->second;
}

std::vector<Role> Program::loaded_roles() const {
  const std::lock_guard lock(mutex_);
  std::vector<Role> roles;
  for (const auto& [role, record] : kernels_) roles.push_back(role);
  return roles;
}

std::vector<Role> Program::roles_of_attention() const {
  std::vector<Role> roles;
  if (source_.checks) roles.push_back(Role::check);
  if (source_.k.is_transformed && !source_.rotates_queries) roles.push_back(Role::rotate_q);
  // On a GPU calls take prefill or decode, unless they ask for the other one. The CPU back-end serves tests of both.
  const bool is_gpu = context_->backend()->info().is_gpu, has_prefill = source_.kernels.count(Role::prefill) != 0;
  if (has_prefill && (!is_gpu || source_.chooses_prefill)) roles.push_back(Role::prefill);
  if (!has_prefill || !is_gpu || !source_.chooses_prefill) {
    roles.push_back(Role::decode);
    if (!source_.fuses_merge || source_.merge_steps > 1) roles.push_back(Role::merge);
  }
  if (source_.v.is_transformed && !source_.rotates_output) roles.push_back(Role::rotate_out);
  return roles;
}

}  // namespace kvjit
