// The functions that Python calls. All arrays are contiguous; B robots, N sequences each.
//
// Compiled once for every kind of processor, each time into a library of its own: functions of the
// standard library must not be shared between kinds.

#include <algorithm>
#include <exception>
#include <memory>

#include "rollout.hpp"
#include "workers.hpp"

namespace {

using simdist::ContextInputs;
using simdist::ContextLayout;
using simdist::kLanes;
using simdist::Model;
using simdist::Rollout;
using simdist::Sizes;
using simdist::Workspace;

struct Kernel {
  Kernel(const Sizes& sizes, const std::vector<int>& widths, simdist::Reader& reader)
      : model(sizes, widths, reader), layout(model) {}
  Model model;
  ContextLayout layout;
};

Workspace& workspace() {
  static thread_local Workspace mine;
  return mine;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// Changes with the order of the weights or with any function below.
int simdist_kernel_version() { return 2; }

int simdist_kernel_lanes() { return kLanes; }

// A copy of the weights, to be given back to simdist_kernel_free; null if their number is not what
// the sizes ask for, or if memory runs out. `sizes` holds Sizes and then the widths of the reactive
// policy's layers.
void* simdist_kernel_new(const int* sizes, const float* weights, int64_t length) {
  try {
    Sizes s;
    std::copy_n(sizes, Sizes::kCount, reinterpret_cast<int*>(&s));
    const std::vector<int> widths(sizes + Sizes::kCount, sizes + Sizes::kCount + s.reactive_layers);
    simdist::Reader reader(weights, length);
    auto kernel = std::make_unique<Kernel>(s, widths, reader);
    return reader.exhausted() ? kernel.release() : nullptr;
  } catch (const std::exception&) {
    return nullptr;
  }
}

void simdist_kernel_free(void* kernel) { delete static_cast<Kernel*>(kernel); }

// Floats of one robot's context.
int64_t simdist_kernel_context_size(const void* kernel) {
  return static_cast<const Kernel*>(kernel)->layout.size();
}

// Fills context (B, context size); for the inputs see ContextInputs.
void simdist_kernel_context(const void* kernel, int robots, const float* const* keys,
                            const float* const* values, const float* reward_bias,
                            const float* value_bias, const float* value_pair_bias,
                            const float* reactive_bias, float* context) {
  const ContextLayout& layout = static_cast<const Kernel*>(kernel)->layout;
  const ContextInputs inputs{keys,       values,          reward_bias,
                             value_bias, value_pair_bias, reactive_bias};
  for (int robot = 0; robot < robots; ++robot)
    layout.fill(inputs, robot, context + robot * layout.size());
}

// Returns (B, N) of actions (B, N, horizon, action).
void simdist_kernel_returns(const void* kernel, const float* context, const float* actions,
                            int robots, int samples, int threads, float* returns) {
  const auto& [model, layout] = *static_cast<const Kernel*>(kernel);
  const int groups = (samples + kLanes - 1) / kLanes;
  const long sequence = static_cast<long>(model.sizes.horizon) * model.sizes.action;
  simdist::Workers::run(threads, robots * groups, [&](int task) {
    const int robot = task / groups, first = task % groups * kLanes;
    const long place = static_cast<long>(robot) * samples + first;
    Rollout(model, layout, workspace())
        .returns(context + robot * layout.size(), actions + place * sequence,
                 std::min(samples - first, kLanes), returns + place);
  });
}

// Actions (B, N, horizon, action) and returns (B, N) of sequences that begin with `first` (B, N,
// given, action), given >= 1, and then deviate from the reactive policy's answers by `deviations`
// (B, N, horizon, action).
void simdist_kernel_follow(const void* kernel, const float* context, const float* deviations,
                           const float* first, int given, const float* lowest, const float* highest,
                           int robots, int samples, int threads, float* actions, float* returns) {
  const auto& [model, layout] = *static_cast<const Kernel*>(kernel);
  // Groups of one task are predicted side by side, as even as can be.
  const int groups = (samples + kLanes - 1) / kLanes;
  const int tasks = (groups + simdist::kRows - 1) / simdist::kRows;
  const long action = model.sizes.action, sequence = model.sizes.horizon * action;
  simdist::Workers::run(threads, robots * tasks, [&](int index) {
    const long robot = index / tasks, task = index % tasks;
    const int from = static_cast<int>(groups * task / tasks) * kLanes;
    const int end = static_cast<int>(groups * (task + 1) / tasks) * kLanes;
    const long place = robot * samples + from;
    const simdist::Following following{deviations + place * sequence,
                                       first + place * given * action, given, lowest, highest};
    Rollout(model, layout, workspace())
        .follow(context + robot * layout.size(), following, std::min(samples, end) - from,
                actions + place * sequence, returns + place);
  });
}

}  // extern "C"
#pragma GCC visibility pop
