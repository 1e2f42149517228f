#pragma once

#include <semaphore.h>

#include <stdexcept>

namespace redlatch::bench {

/// In shared memory: an event of one process that another one sleeps for.
class Signal {
public:
    Signal() {
        if (::sem_init(&semaphore_, 1, 0) != 0) throw std::runtime_error{"no semaphore"};
    }
    void send() noexcept { ::sem_post(&semaphore_); }
    void wait() noexcept {
        while (::sem_wait(&semaphore_) != 0) {
        }
    }

private:
    sem_t semaphore_{};
};

}  // namespace redlatch::bench
