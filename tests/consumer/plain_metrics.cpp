// Built with -fno-exceptions, as a part of label_throws.cpp's program.
#include <redlatch/metrics.hpp>

#include <memory>

std::shared_ptr<redlatch::Metrics> plain_metrics() {
    return std::make_shared<redlatch::Metrics>();
}
