/* The part of MPI that Kiln's header calls, for processes that were forked with pipes from rank 0 to each other. */
#ifndef KILN_TESTS_FAKE_MPI_H
#define KILN_TESTS_FAKE_MPI_H

#include <unistd.h>

#define MPI_VERSION 4
#define MPI_SUCCESS 0
#define MPI_ERR_COMM 5

typedef int MPI_Datatype; /* its bytes */
#define MPI_CHAR ((MPI_Datatype)1)

typedef struct fake_mpi_communicator {
  int rank, size;
  const int (*pipes)[2]; /* by rank: the end that it reads, and the end that rank 0 writes */
} * MPI_Comm;
#define MPI_COMM_NULL ((MPI_Comm)0)

static inline int MPI_Comm_rank(MPI_Comm communicator, int* rank) {
  if (communicator == MPI_COMM_NULL) return MPI_ERR_COMM;
  *rank = communicator->rank;
  return MPI_SUCCESS;
}

static inline int MPI_Comm_size(MPI_Comm communicator, int* size) {
  *size = communicator->size;
  return MPI_SUCCESS;
}

static inline int MPI_Bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm communicator) {
  const ssize_t bytes = (ssize_t)count * type;
  if (root != 0) return MPI_ERR_COMM;
  if (communicator->rank != 0)
    return read(communicator->pipes[communicator->rank][0], buffer, (size_t)bytes) == bytes ? MPI_SUCCESS
                                                                                            : MPI_ERR_COMM;
  for (int rank = 1; rank < communicator->size; ++rank)
    if (write(communicator->pipes[rank][1], buffer, (size_t)bytes) != bytes) return MPI_ERR_COMM;
  return MPI_SUCCESS;
}

#endif
