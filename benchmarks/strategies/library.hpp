#pragma once

#include "strategies/strategy.hpp"
#include <redlatch/redlatch.hpp>

#include <memory>
#include <stdexcept>

namespace redlatch::bench {

/// redlatch with the options that it has by itself.
template <class Policy>
class LibrarySide final : public Side {
public:
    explicit LibrarySide(const Place& place) : key_(place.key), client_(place.uri) {}

    std::unique_ptr<bench::Contender> contender(unsigned /*seed*/) override {
        return std::make_unique<Handle>(client_, key_);
    }

private:
    class Handle final : public bench::Contender {
    public:
        Handle(Client& client, const std::string& key) : lock_(client, key) {}
        void lock() override { lock_.lock(); }
        void unlock() override {
            const auto outcome = lock_.release();
            if (!outcome) throw LockError{outcome.error()};
            if (*outcome != Release::released) throw std::runtime_error{"redlatch: not released"};
        }

    private:
        Lock<Policy> lock_;
    };

    std::string key_;
    Client client_;
};

}  // namespace redlatch::bench
