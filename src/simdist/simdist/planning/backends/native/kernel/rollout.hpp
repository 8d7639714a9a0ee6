// Predicts the latents after groups of action sequences, and scores them.
//
// A group is one register of sequences of one robot. Its activations are (position, feature) arrays
// of registers. What needs no other position than its own is done for a few positions from one
// end to the other, so that everything but the weights stays in the first-level cache. Where
// actions depend on what is predicted, positions come one at a time: then the same is done for a
// few groups instead, and queries, keys and values of the positions before are kept.
#pragma once

#include <vector>

#include "attention.hpp"
#include "context.hpp"

namespace simdist {

// Memory of one thread. It grows to what a model needs and is kept.
struct Workspace {
  std::vector<Lanes> actions, latents, stream, mixed;  // (groups, horizon, features)
  std::vector<Lanes> heads;                            // queries, keys and values
  std::vector<Lanes> logits;
  std::vector<Lanes> row, query, cross_mixed, wide, wider;  // (kRows, features)

  // For `groups` groups at a time, whose positions come one by one or all at once.
  void fit(const Model& model, int groups, bool one_by_one) {
    const Sizes& s = model.sizes;
    const size_t positions = static_cast<size_t>(groups) * s.horizon;
    grow(actions, positions * s.action);
    grow(latents, positions * s.latent);
    grow(stream, static_cast<size_t>(s.horizon) * s.latent);
    grow(mixed, static_cast<size_t>(std::max(s.horizon, kRows)) * s.latent);
    // Sequences that grow keep all heads of all layers.
    const size_t kept = one_by_one ? static_cast<size_t>(s.dynamics_layers) * s.dynamics_heads : 1;
    const int width = s.latent / std::min(s.dynamics_heads, s.head_heads);
    grow(heads, kept * positions * 3 * width);
    grow(logits, std::max(s.horizon, kRows * padded(s.context)));
    grow(row, kRows * s.latent);
    grow(query, kRows * s.latent);
    grow(cross_mixed, kRows * s.latent);
    int widest = s.ff;
    if (s.reactive_layers) widest = std::max(widest, model.reactive_latent.outputs);
    for (const Linear& layer : model.reactive) widest = std::max(widest, layer.outputs);
    grow(wide, static_cast<size_t>(kRows) * widest);
    grow(wider, static_cast<size_t>(kRows) * widest);
  }

 private:
  static void grow(std::vector<Lanes>& memory, size_t size) {
    if (memory.size() < size) memory.resize(size);
  }
};

// How sequences come about: `deviations` (count, horizon, action) are added to the policy's
// answers, but they begin with `first` (count, given, action). Limits hold for every action after.
struct Following {
  const float* deviations;
  const float* first;
  int given;
  const float* lowest;   // (action)
  const float* highest;  // (action)
};

class Rollout {
 public:
  Rollout(const Model& model, const ContextLayout& layout, Workspace& work)
      : m_(model), s_(model.sizes), layout_(layout), w_(work) {
    static thread_local std::vector<float> zeros;
    const size_t widest =
        padded(std::max({s_.latent, s_.context, s_.ff, model.reactive_latent.outputs}));
    if (zeros.size() < widest) zeros.resize(widest);
    none_ = {zeros.data(), 0};
  }

  // Returns of `count` <= kLanes sequences (count, horizon, action) of one robot.
  void returns(const float* robot, const float* actions, int count, float* result) {
    w_.fit(m_, 1, false);
    for (int t = 0; t < s_.horizon; ++t)
      for (int a = 0; a < s_.action; ++a)
        w_.actions[t * s_.action + a] = scaled(a, gather(actions, count, s_.horizon, t, a));
    predict(robot);
    scatter(score(robot, w_.actions.data(), w_.latents.data()), count, result, 1);
  }

  // Actions (count, horizon, action) and returns of `count` <= kRows * kLanes sequences of one
  // robot whose actions answer the predicted latents.
  void follow(const float* robot, const Following& in, int count, float* actions, float* result) {
    const int groups = (count + kLanes - 1) / kLanes;
    const long step = static_cast<long>(s_.horizon) * s_.action;  // of a group's scaled actions
    w_.fit(m_, groups, true);
    for (int t = 0; t < s_.horizon; ++t) {
      const bool given = t < in.given;
      if (!given) ask_policy(robot, t, groups);
      for (int g = 0; g < groups; ++g) {
        const int first = g * kLanes, lanes = std::min(count - first, kLanes);
        Lanes* scaled_action = w_.actions.data() + g * step + t * s_.action;
        for (int a = 0; a < s_.action; ++a) {
          Lanes action;
          if (given) {
            const float* from = in.first + static_cast<long>(first) * in.given * s_.action;
            action = gather(from, lanes, in.given, t, a);
          } else {
            const Lanes answer = w_.wide[g * s_.action + a] * m_.action_std[a] + m_.action_mean[a];
            action = answer + gather(in.deviations + first * step, lanes, s_.horizon, t, a);
            action = at_most(at_least(action, in.lowest[a]), in.highest[a]);
          }
          scaled_action[a] = scaled(a, action);
          scatter(action, lanes, actions + first * step + t * s_.action + a, step);
        }
      }
      predict_next(robot, t, groups);
    }
    for (int g = 0; g < groups; ++g) {
      const int first = g * kLanes;
      const Lanes* latents = w_.latents.data() + static_cast<long>(g) * s_.horizon * s_.latent;
      scatter(score(robot, w_.actions.data() + g * step, latents), std::min(count - first, kLanes),
              result + first, 1);
    }
  }

 private:
  // The reactive policy's answer to the latents and actions before position t, into w_.wide.
  void ask_policy(const float* robot, int t, int groups) {
    const long actions = static_cast<long>(s_.horizon) * s_.action;
    const long latents = static_cast<long>(s_.horizon) * s_.latent;
    int width = m_.reactive_latent.outputs;
    Lanes* x = w_.wide.data();
    Lanes* next = w_.wider.data();
    linear_rows<Finish::kStore>(m_.reactive_action.packed(), layout_.reactive(robot),
                                w_.actions.data() + (t - 1) * s_.action, actions, x, width, groups);
    linear_rows<Finish::kAdd>(m_.reactive_latent.packed(), none_,
                              w_.latents.data() + (t - 1) * s_.latent, latents, x, width, groups);
    for (const Linear& layer : m_.reactive) {
      for (int i = 0; i < groups * width; ++i) gelu<1>(x + i);
      linear_rows<Finish::kStore>(layer.packed(), layer.own_bias(), x, width, next, layer.outputs,
                                  groups);
      std::swap(x, next);
      width = layer.outputs;
    }
    if (x != w_.wide.data()) std::copy_n(x, groups * width, w_.wide.data());
  }

  // Latents of position t of all groups, from w_.actions into w_.latents.
  void predict_next(const float* robot, int t, int groups) {
    const int latent = s_.latent, width = latent / s_.dynamics_heads, step = 3 * width;
    const long sequence = static_cast<long>(s_.horizon) * step;  // of one head of one group
    Lanes* x = w_.row.data();
    const Lanes* actions = w_.actions.data() + t * s_.action;
    const long action_step = static_cast<long>(s_.horizon) * s_.action;
    linear_rows<Finish::kStore>(m_.embedding.packed(), {m_.embedding.own_bias(t).rows, 0}, actions,
                                action_step, x, latent, groups);
    Lanes* kept = w_.heads.data();
    for (int i = 0; i < s_.dynamics_layers; ++i) {
      for (int h = 0; h < s_.dynamics_heads; ++h, kept += groups * sequence) {
        const Linear& head = m_.dynamics[i].self.heads[h];
        const Bias bias = {head.own_bias(i ? 0 : t).rows, 0};
        linear_rows<Finish::kStore>(head.packed(), bias, i ? x : actions, i ? latent : action_step,
                                    kept + t * step, sequence, groups);
        for (int g = 0; g < groups; ++g) {
          const Lanes* own = kept + g * sequence;
          attend(own + t * step, own + width, own + 2 * width, step, t + 1, width,
                 w_.logits.data(), w_.mixed.data() + g * latent + h * width);
        }
      }
      look_and_feed(robot, i, w_.mixed.data(), x, groups);
    }
    for (int g = 0; g < groups; ++g)
      std::copy_n(x + g * latent, latent,
                  w_.latents.data() + (static_cast<long>(g) * s_.horizon + t) * latent);
  }

  // Latents of w_.actions, into w_.latents.
  void predict(const float* robot) {
    Lanes* x = w_.latents.data();
    linear(m_.embedding.packed(), m_.embedding.own_bias(), w_.actions.data(), s_.action, x,
           s_.latent, s_.horizon);
    for (int i = 0; i < s_.dynamics_layers; ++i) {
      const SelfAttention& self = m_.dynamics[i].self;
      if (i)
        look_at_each_other(self, x, s_.latent, true);
      else
        look_at_each_other(self, w_.actions.data(), s_.action, true);
      for_slices(s_.horizon, [&](int first, int rows) {
        look_and_feed(robot, i, w_.mixed.data() + first * s_.latent, x + first * s_.latent, rows);
      });
    }
  }

  // Self-attention of all positions, without its output layer, into w_.mixed.
  void look_at_each_other(const SelfAttention& self, const Lanes* x, int inputs, bool causal) {
    const int width = s_.latent / static_cast<int>(self.heads.size()), step = 3 * width;
    Lanes* buffer = w_.heads.data();
    Lanes* mixed = w_.mixed.data();
    for (const Linear& head : self.heads) {
      linear(head.packed(), head.own_bias(), x, inputs, buffer, step, s_.horizon);
      for (int t = 0; t < s_.horizon; ++t)
        attend(buffer + t * step, buffer + width, buffer + 2 * width, step,
               causal ? t + 1 : s_.horizon, width, w_.logits.data(), mixed + t * s_.latent);
      mixed += width;
    }
  }

  // The rest of a decoder layer for at most kRows positions of one robot.
  void look_and_feed(const float* robot, int index, const Lanes* mixed, Lanes* x, int rows) {
    const DecoderLayer& layer = m_.dynamics[index];
    add(layer.self.output, mixed, x, rows);
    layer.self.norm.apply(x, rows);

    const int latent = s_.latent, width = latent / s_.dynamics_heads, step = padded(s_.context);
    Lanes* query = w_.query.data();
    Lanes* seen = w_.cross_mixed.data();
    linear_rows<Finish::kStore>(layer.cross_query.packed(), layer.cross_query.own_bias(), x, latent,
                                query, latent, rows);
    for (int h = 0; h < s_.dynamics_heads; ++h, query += width, seen += width) {
      Lanes* logits = w_.logits.data();
      linear_rows<Finish::kStore>(layout_.keys(robot, index, h), none_, query, latent, logits, step,
                                  rows);
      Lanes share[kRows];
      for (int r = 0; r < rows; ++r)
        share[r] = 1.0f / exponentials(logits + r * step, s_.context);
      linear_rows<Finish::kStore>(layout_.values(robot, index, h), none_, logits, step, seen,
                                  latent, rows);
      for (int r = 0; r < rows; ++r)
        for (int k = 0; k < width; ++k) seen[r * latent + k] *= share[r];
    }
    add(layer.cross_output, w_.cross_mixed.data(), x, rows);
    layer.cross_norm.apply(x, rows);
    feed(layer.feed_forward, x, rows);
  }

  void feed(const FeedForward& layer, Lanes* x, int rows) {
    linear_rows<Finish::kGelu>(layer.widen.packed(), layer.widen.own_bias(), x, s_.latent,
                               w_.wide.data(), s_.ff, rows);
    linear_rows<Finish::kAdd>(layer.narrow.packed(), layer.narrow.own_bias(), w_.wide.data(), s_.ff,
                              x, s_.latent, rows);
    layer.norm.apply(x, rows);
  }

  void add(const Linear& layer, const Lanes* from, Lanes* x, int rows) {
    linear_rows<Finish::kAdd>(layer.packed(), layer.own_bias(), from, layer.inputs, x,
                              layer.outputs, rows);
  }

  void encode(const EncoderLayer& layer, Lanes* x) {
    look_at_each_other(layer.self, x, s_.latent, false);
    for_slices(s_.horizon, [&](int first, int rows) {
      Lanes* slice = x + first * s_.latent;
      add(layer.self.output, w_.mixed.data() + first * s_.latent, slice, rows);
      layer.self.norm.apply(slice, rows);
      feed(layer.feed_forward, slice, rows);
    });
  }

  Lanes score(const float* robot, const Lanes* actions, const Lanes* latents) {
    return rewards(robot, actions, latents) + m_.discounts[s_.horizon] * value(robot, latents);
  }

  // Discounted sum of rewards.
  Lanes rewards(const float* robot, const Lanes* actions, const Lanes* latents) {
    Lanes* x = w_.stream.data();
    linear(m_.reward_action.packed(), layout_.reward(robot), actions, s_.action, x, s_.latent,
           s_.horizon);
    // A reward belongs to the latent before the action.
    linear<Finish::kAdd>(m_.reward_latent.packed(), none_, latents, s_.latent, x + s_.latent,
                         s_.latent, s_.horizon - 1);
    for (const EncoderLayer& layer : m_.reward) encode(layer, x);
    Lanes sum{};
    for (int t = 0; t < s_.horizon; ++t)
      sum += m_.discounts[t] * m_.reward_readout.apply(x + t * s_.latent);
    return sum;
  }

  // Value of the last latent.
  Lanes value(const float* robot, const Lanes* latents) {
    const int latent = s_.latent, width = latent / s_.head_heads, step = 2 * width;
    const LastLayer& layer = m_.value_last;
    const Lanes* source = latents;
    Lanes* last = w_.row.data();
    if (m_.value.empty()) {
      linear_rows<Finish::kStore>(m_.value_embedding.packed(),
                                  layout_.value(robot, s_.horizon - 1),
                                  latents + (s_.horizon - 1) * latent, latent, last, latent, 1);
    } else {
      Lanes* x = w_.stream.data();
      linear(m_.value_embedding.packed(), layout_.value(robot), latents, latent, x, latent,
             s_.horizon);
      for (const EncoderLayer& before : m_.value) encode(before, x);
      std::copy_n(x + (s_.horizon - 1) * latent, latent, last);
      source = x;
    }
    Lanes* query = w_.query.data();
    Lanes* pairs = w_.heads.data();
    Lanes* mixed = w_.mixed.data();
    linear_rows<Finish::kStore>(layer.query.packed(), layer.query.own_bias(), last, latent, query,
                                latent, 1);
    for (int h = 0; h < s_.head_heads; ++h) {
      const Linear& head = layer.heads[h];
      const Bias bias = m_.value.empty() ? layout_.value_pair(robot, h) : head.own_bias();
      linear(head.packed(), bias, source, latent, pairs, step, s_.horizon);
      attend(query + h * width, pairs, pairs + width, step, s_.horizon, width, w_.logits.data(),
             mixed + h * width);
    }
    add(layer.output, mixed, last, 1);
    layer.norm.apply(last, 1);
    feed(layer.feed_forward, last, 1);
    return m_.value_readout.apply(last);
  }

  // Number (t, a) of `count` sequences (steps, action); lanes beyond repeat the first sequence.
  Lanes gather(const float* sequences, int count, int steps, int t, int a) const {
    const long step = static_cast<long>(steps) * s_.action;
    const float* from = sequences + t * s_.action + a;
    Lanes x;
    for (int i = 0; i < kLanes; ++i) x[i] = from[i < count ? i * step : 0];
    return x;
  }

  Lanes scaled(int a, Lanes action) const {
    return (action - m_.action_mean[a]) / m_.action_std[a];
  }

  static void scatter(Lanes x, int count, float* to, long step) {
    for (int i = 0; i < count; ++i) to[i * step] = x[i];
  }

  const Model& m_;
  const Sizes& s_;
  const ContextLayout& layout_;
  Workspace& w_;
  Bias none_;
};

}  // namespace simdist
