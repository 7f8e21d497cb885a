/**
 * Maximum number of notaries in the answer of `GET /v1/notaries`. A client finds any other enclave
 * when that enclave answers a call.
 */
export const NOTARIES_MAX = 64
