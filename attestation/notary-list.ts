/**
 * Maximum number of notaries in the answer of `GET /v1/notaries`. A client finds an enclave that is
 * not in the list when that enclave answers a call.
 */
export const NOTARIES_MAX = 64
