// A few lines of test framework: CHECK(condition) reports file, line and text, and the process ends with 1.
#ifndef MLX_TX_TEST_CHECK_H
#define MLX_TX_TEST_CHECK_H

#include <cstdio>
#include <cstdlib>

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

#endif
