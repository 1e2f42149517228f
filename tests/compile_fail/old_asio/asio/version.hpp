#pragma once

// The last Asio that is refused.
#define ASIO_VERSION 102100
