/* How long MPI_Init takes, the slowest rank counting, and what the first collective after it takes. */
#include <mpi.h>
#include <stdio.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

int main(int argc, char **argv) {
  int rank, size, sum;
  double spent[2], most[2], from = now();
  MPI_Init(&argc, &argv);
  spent[0] = now() - from;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  from = now();
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  spent[1] = now() - from;
  MPI_Reduce(spent, most, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("ranks %d init_ms %.1f first_ms %.1f\n", size, most[0], most[1]);
  MPI_Finalize();
  return 0;
}
