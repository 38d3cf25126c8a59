/* A message there and back between ranks 0 and 1, for sizes from 0 to the first argument (default 256 MiB); prints the
   columns of the Intel MPI Benchmarks: half the round trip in microseconds, and bytes by that. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
  long last = argc > 1 ? atol(argv[1]) : 256 << 20;
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  char *bytes = malloc(last ? last : 1);
  memset(bytes, 1, last ? last : 1);
  if (rank == 0) printf("%12s %12s %12s %12s\n", "#bytes", "#repetitions", "t[usec]", "Mbytes/sec");
  for (long size = 0; size <= last; size = size ? 2 * size : 1) {
    /* Of the largest a few, or they would take minutes on a slow network. */
    long times = size > 65536 ? 4 * 1024 * 1024 / size + 1 : 1000, rounds = size > 4 * 1024 * 1024 ? 2 : 5;
    double best = 1e30;
    for (int round = 0; round < rounds; round++) {
      MPI_Barrier(MPI_COMM_WORLD);
      double from = MPI_Wtime();
      for (long i = 0; i < times && rank < 2; i++) {
        if (rank == 0) MPI_Send(bytes, size, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(bytes, size, MPI_CHAR, !rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1) MPI_Send(bytes, size, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
      }
      double one = (MPI_Wtime() - from) / times / 2;
      if (one < best) best = one;
    }
    if (rank == 0)
      printf("%12ld %12ld %12.2f %12.2f\n", size, times, best * 1e6, size / best / 1e6);
  }
  MPI_Finalize();
  return 0;
}
