#pragma once

#include <redlatch/error.hpp>
#include <redlatch/net/dialer.hpp>
#include <redlatch/net/hiredis_stream.hpp>
#include <redlatch/net/no_cancellation.hpp>
#include <redlatch/net/open_connection.hpp>
#include <redlatch/options.hpp>

#include <chrono>
#include <exception>
#include <string>
#include <utility>

namespace redlatch::inline v0::detail {

/// Has the user make the connections.
class OwnDialer final : public Dialer {
public:
    OwnDialer(ConnectionFactory factory, std::chrono::milliseconds connect_timeout,
              Examine examine = {})
        : factory_(std::move(factory)),
          connect_timeout_(connect_timeout),
          examine_(std::move(examine)) {}

    std::string name() const override { return printable(factory_.name); }

    Expected<Connection, Fault> open(const Limit& limit) override {
        const unsigned epoch = this->epoch();
        const Limit sooner = limit.within(connect_timeout_);
        auto context = make(sooner);
        if (!context) {
            context.error().error.node = name();
            return Unexpected{std::move(context).error()};
        }
        auto stream = stream_of(context->get());
        auto connection = adopt_connection(*std::move(context), name(), std::move(stream), sooner);
        return of_epoch(epoch, examined(std::move(connection), examine_, sooner));
    }

private:
    Expected<ContextPtr, Fault> make(const Limit& limit) const {
        const auto time = std::chrono::floor<std::chrono::milliseconds>(limit.left());
        if (time <= std::chrono::milliseconds::zero()) {
            return Unexpected{io_fault("no time left to connect")};
        }
        const NoCancellation uncancelled;  // nothing of the user's may be left half done
        try {
            ContextPtr context{factory_.connect(time)};
            if (context == nullptr) return Unexpected{io_fault("the factory made no connection")};
            if (context->err != 0) return Unexpected{io_fault(printable(context->errstr))};
            if (context->fd < 0) return Unexpected{io_fault("the factory's connection is closed")};
            return context;
        } catch (const std::exception& error) {
            return Unexpected{io_fault("the factory: " + printable(error.what()))};
        } catch (...) {
            return Unexpected{io_fault("the factory threw something that is no std::exception")};
        }
    }

    const ConnectionFactory factory_;
    const std::chrono::milliseconds connect_timeout_;
    const Examine examine_;
};

}  // namespace redlatch::inline v0::detail
