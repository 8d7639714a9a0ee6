// What all action sequences of one robot share during one plan.
#pragma once

#include <cstdint>

#include "model.hpp"

namespace simdist {

// As they come from PyTorch, contiguous; B robots.
struct ContextInputs {
  const float* const* keys;    // per layer (B, heads, context, width)
  const float* const* values;  // per layer (B, heads, context, width)
  const float* reward_bias;    // (B, horizon, latent), with the present latent's part in row 0
  const float* value_bias;     // (B, horizon, latent)
  const float* value_pair_bias;  // (B, heads, horizon, 2 width), only for a single-layer head
  const float* reactive_bias;    // (B, first width), only where there is a reactive policy
};

// Places of one robot's part in an array of floats; keys and values are packed as weights, which
// they are to a query.
class ContextLayout {
 public:
  explicit ContextLayout(const Model& model) : model_(model), s_(model.sizes) {
    width_ = s_.latent / s_.dynamics_heads;
    pair_ = packed_size(width_, s_.context) + packed_size(s_.context, width_);
    reward_ = pair_ * s_.dynamics_layers * s_.dynamics_heads;
    value_ = reward_ + static_cast<long>(s_.horizon) * padded(s_.latent);
    value_pair_ = value_ + static_cast<long>(s_.horizon) * padded(s_.latent);
    const long single = s_.head_layers == 1 ? s_.head_heads * value_pair_step() : 0;
    reactive_ = value_pair_ + single;
    size_ = reactive_ + (s_.reactive_layers ? padded(model.reactive_latent.outputs) : 0);
  }

  long size() const { return size_; }  // floats of one robot

  Packed keys(const float* robot, int layer, int head) const {
    return {robot + pair(layer, head), width_, s_.context};
  }
  Packed values(const float* robot, int layer, int head) const {
    return {robot + pair(layer, head) + packed_size(width_, s_.context), s_.context, width_};
  }
  Bias reward(const float* robot) const { return {robot + reward_, padded(s_.latent)}; }
  Bias value(const float* robot, int row = 0) const {
    return {robot + value_ + static_cast<long>(row) * padded(s_.latent), padded(s_.latent)};
  }
  Bias value_pair(const float* robot, int head) const {
    return {robot + value_pair_ + head * value_pair_step(), padded(2 * head_width())};
  }
  Bias reactive(const float* robot) const { return {robot + reactive_, 0}; }

  void fill(const ContextInputs& in, int robot, float* to) const {
    for (int layer = 0; layer < s_.dynamics_layers; ++layer)
      for (int head = 0; head < s_.dynamics_heads; ++head) {
        const long from =
            (static_cast<long>(robot) * s_.dynamics_heads + head) * s_.context * width_;
        float* keys = to + pair(layer, head);
        pack(in.keys[layer] + from, width_, 1, width_, s_.context, keys);
        pack(in.values[layer] + from, 1, width_, s_.context, width_,
             keys + packed_size(width_, s_.context));
      }
    const long sequence = static_cast<long>(s_.horizon) * s_.latent;
    rows(in.reward_bias + robot * sequence, s_.horizon, s_.latent, to + reward_);
    rows(in.value_bias + robot * sequence, s_.horizon, s_.latent, to + value_);
    if (s_.head_layers == 1)
      rows(in.value_pair_bias + robot * 2 * sequence, s_.head_heads * s_.horizon, 2 * head_width(),
           to + value_pair_);
    if (s_.reactive_layers) {
      const int width = model_.reactive_latent.outputs;
      rows(in.reactive_bias + static_cast<long>(robot) * width, 1, width, to + reactive_);
    }
  }

 private:
  int head_width() const { return s_.latent / s_.head_heads; }
  long value_pair_step() const { return static_cast<long>(s_.horizon) * padded(2 * head_width()); }
  long pair(int layer, int head) const { return (layer * s_.dynamics_heads + head) * pair_; }

  // Rows of `width` numbers, each filled up with zeros to whole blocks.
  static void rows(const float* from, int count, int width, float* to) {
    for (int r = 0; r < count; ++r, from += width, to += padded(width)) {
      std::copy(from, from + width, to);
      std::fill(to + width, to + padded(width), 0.0f);
    }
  }

  const Model& model_;
  const Sizes& s_;
  int width_;
  long pair_, reward_, value_, value_pair_, reactive_, size_;
};

}  // namespace simdist
