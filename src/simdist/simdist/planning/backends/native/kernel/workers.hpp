// Threads that wait for work between plans.
#pragma once

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace simdist {

class Workers {
 public:
  // Calls task(0) .. task(tasks - 1), each once, on at most `threads` threads including this one.
  // Two callers at the same time do not share: the second works alone.
  static void run(int threads, int tasks, const std::function<void(int)>& task) {
    if (threads > tasks) threads = tasks;
    if (threads > 1) {
      static std::mutex busy;
      static Workers* pool = nullptr;
      const std::unique_lock<std::mutex> lock(busy, std::try_to_lock);
      if (lock.owns_lock()) {
        // A fork has no threads but its own; those of its parent are left to the parent. The pool
        // is never destroyed, as its threads may outlive static objects.
        if (!pool || pool->process_ != getpid()) pool = new Workers;
        pool->share(threads, tasks, task);
        return;
      }
    }
    for (int i = 0; i < tasks; ++i) task(i);
  }

 private:
  void share(int threads, int tasks, const std::function<void(int)>& task) {
    const int helpers = threads - 1;
    while (started_ < helpers) {
      std::thread(&Workers::help, this, started_).detach();
      ++started_;
    }
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      task_ = &task;
      tasks_ = tasks;
      next_ = 0;
      wanted_ = pending_ = helpers;
      ++round_;
    }
    wake_.notify_all();
    work();
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return pending_ == 0; });
  }

  void work() {
    for (int i; (i = next_.fetch_add(1)) < tasks_;) (*task_)(i);
  }

  void help(int index) {
    std::unique_lock<std::mutex> lock(mutex_);
    for (long seen = 0;;) {
      wake_.wait(lock, [&] { return round_ != seen; });
      seen = round_;
      if (index >= wanted_) continue;
      lock.unlock();
      work();
      lock.lock();
      if (--pending_ == 0) done_.notify_one();
    }
  }

  const pid_t process_ = getpid();
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const std::function<void(int)>* task_ = nullptr;
  std::atomic<int> next_{0};
  int tasks_ = 0, started_ = 0, wanted_ = 0, pending_ = 0;
  long round_ = 0;
};

}  // namespace simdist
