// A program that runs on Asio.

#include <redlatch/asio.hpp>
#include <redlatch/redlatch.hpp>

#if defined(REDLATCH_BOOST_ASIO)
#include <boost/asio/io_context.hpp>
namespace net = boost::asio;
#else
#include <asio/io_context.hpp>
namespace net = asio;
#endif

int main() {
    net::io_context io;
    redlatch::Client client{"redis://127.0.0.1:1"};
    redlatch::Lock<> lock{client, "name"};
    redlatch::async_acquire(lock, {.wait = redlatch::Wait::none()},
                            [](redlatch::Result<redlatch::Held>) {});
    io.run();
}
