/**
 * Most notaries in the answer of `GET /v1/notaries`. A client accepts at most this number. A client
 * finds a further enclave when that enclave answers a call.
 */
export const NOTARIES_MAX = 64
