#pragma once

// The Boost of Debian 12's libboost-dev.
#define BOOST_VERSION 107400
