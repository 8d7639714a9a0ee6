// The weights of one world model, as the kernel uses them.
//
// They arrive as one array of floats that `weights.py` writes in the very order in which `Model`
// reads it. What is folded there: the scale of queries; the embedding of actions into the first
// layer's queries, keys and values; the embedding of latents into the value head's keys and values
// if it has one layer.
#pragma once

#include <cstdint>
#include <vector>

#include "linear.hpp"
#include "norm.hpp"

namespace simdist {

// In the order of the array of numbers that comes with the weights.
struct Sizes {
  int latent, action, horizon, context, ff;
  int dynamics_layers, dynamics_heads, head_layers, head_heads;
  int reactive_layers;  // 0: the model has no reactive policy
  static constexpr int kCount = 10;
};

class Reader {
 public:
  Reader(const float* data, int64_t length) : next_(data), left_(length) {}

  std::vector<float> vector(int64_t length) {
    if (length > left_) {
      complete_ = false;
      return std::vector<float>(length);
    }
    std::vector<float> values(next_, next_ + length);
    next_ += length;
    left_ -= length;
    return values;
  }

  float number() { return vector(1)[0]; }

  Linear linear(int inputs, int outputs, int bias_rows) {
    Linear layer;
    layer.inputs = inputs;
    layer.outputs = outputs;
    layer.bias_rows = bias_rows;
    layer.weight.resize(packed_size(inputs, outputs));
    const auto weight = vector(static_cast<int64_t>(inputs) * outputs);
    pack(weight.data(), inputs, 1, inputs, outputs, layer.weight.data());
    layer.bias.resize(static_cast<size_t>(bias_rows) * padded(outputs));
    for (int row = 0; row < bias_rows; ++row) {
      const auto bias = vector(outputs);
      std::copy(bias.begin(), bias.end(), layer.bias.begin() + row * padded(outputs));
    }
    return layer;
  }

  Norm norm(int width) {
    Norm norm;
    norm.gain = vector(width);
    norm.shift = vector(width);
    return norm;
  }

  bool exhausted() const { return complete_ && left_ == 0; }

 private:
  const float* next_;
  int64_t left_;
  bool complete_ = true;
};

struct FeedForward {
  Linear widen, narrow;
  Norm norm;

  static FeedForward read(Reader& reader, const Sizes& s) {
    FeedForward f;
    f.widen = reader.linear(s.latent, s.ff, 1);
    f.narrow = reader.linear(s.ff, s.latent, 1);
    f.norm = reader.norm(s.latent);
    return f;
  }
};

// Self-attention: for every head one layer that gives its query, key and value side by side.
struct SelfAttention {
  std::vector<Linear> heads;
  Linear output;
  Norm norm;

  static SelfAttention read(Reader& reader, const Sizes& s, int heads, int inputs, int bias_rows) {
    SelfAttention a;
    for (int h = 0; h < heads; ++h)
      a.heads.push_back(reader.linear(inputs, 3 * (s.latent / heads), bias_rows));
    a.output = reader.linear(s.latent, s.latent, 1);
    a.norm = reader.norm(s.latent);
    return a;
  }
};

struct DecoderLayer {
  SelfAttention self;
  Linear cross_query, cross_output;
  Norm cross_norm;
  FeedForward feed_forward;
};

struct EncoderLayer {
  SelfAttention self;
  FeedForward feed_forward;
};

// The last layer of the value head, of which only the last position is wanted.
struct LastLayer {
  Linear query;
  std::vector<Linear> heads;  // key and value side by side
  Linear output;
  Norm norm;
  FeedForward feed_forward;
};

// One number from a latent, in physical units.
struct Readout {
  std::vector<float> weight;
  float bias, mean, std;

  static Readout read(Reader& reader, const Sizes& s) {
    Readout r;
    r.weight = reader.vector(s.latent);
    r.bias = reader.number();
    r.mean = reader.number();
    r.std = reader.number();
    return r;
  }

  Lanes apply(const Lanes* x) const {
    Lanes sum = splat(bias);
    for (size_t k = 0; k < weight.size(); ++k) sum += x[k] * weight[k];
    return sum * std + mean;
  }
};

struct Model {
  Sizes sizes;
  std::vector<float> action_mean, action_std;
  Linear embedding;
  std::vector<DecoderLayer> dynamics;
  Linear reward_latent, reward_action;
  std::vector<EncoderLayer> reward;
  Readout reward_readout;
  Linear value_embedding;
  std::vector<EncoderLayer> value;  // all but the last layer
  LastLayer value_last;
  Readout value_readout;
  std::vector<float> discounts;  // horizon + 1
  Linear reactive_latent, reactive_action;
  std::vector<Linear> reactive;  // the layers after the first

  // `widths` are the outputs of the reactive policy's layers.
  Model(const Sizes& s, const std::vector<int>& widths, Reader& reader) : sizes(s) {
    action_mean = reader.vector(s.action);
    action_std = reader.vector(s.action);
    embedding = reader.linear(s.action, s.latent, s.horizon);
    for (int i = 0; i < s.dynamics_layers; ++i) {
      DecoderLayer layer;
      layer.self = SelfAttention::read(reader, s, s.dynamics_heads, i ? s.latent : s.action,
                                       i ? 1 : s.horizon);
      layer.cross_query = reader.linear(s.latent, s.latent, 1);
      layer.cross_output = reader.linear(s.latent, s.latent, 1);
      layer.cross_norm = reader.norm(s.latent);
      layer.feed_forward = FeedForward::read(reader, s);
      dynamics.push_back(std::move(layer));
    }
    reward_latent = reader.linear(s.latent, s.latent, 0);
    reward_action = reader.linear(s.action, s.latent, 0);
    for (int i = 0; i < s.head_layers; ++i) reward.push_back(encoder_layer(reader));
    reward_readout = Readout::read(reader, s);
    value_embedding = reader.linear(s.latent, s.latent, 0);
    for (int i = 0; i + 1 < s.head_layers; ++i) value.push_back(encoder_layer(reader));
    value_last.query = reader.linear(s.latent, s.latent, 1);
    for (int h = 0; h < s.head_heads; ++h)
      value_last.heads.push_back(
          reader.linear(s.latent, 2 * (s.latent / s.head_heads), s.head_layers > 1 ? 1 : 0));
    value_last.output = reader.linear(s.latent, s.latent, 1);
    value_last.norm = reader.norm(s.latent);
    value_last.feed_forward = FeedForward::read(reader, s);
    value_readout = Readout::read(reader, s);
    discounts = reader.vector(s.horizon + 1);
    for (size_t i = 0; i < widths.size(); ++i) {
      if (i) {
        reactive.push_back(reader.linear(widths[i - 1], widths[i], 1));
      } else {
        reactive_latent = reader.linear(s.latent, widths[0], 0);
        reactive_action = reader.linear(s.action, widths[0], 0);
      }
    }
  }

 private:
  EncoderLayer encoder_layer(Reader& reader) const {
    EncoderLayer layer;
    layer.self = SelfAttention::read(reader, sizes, sizes.head_heads, sizes.latent, 1);
    layer.feed_forward = FeedForward::read(reader, sizes);
    return layer;
  }
};

}  // namespace simdist
