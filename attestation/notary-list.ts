/**
 * Maximum number of notaries in the answer of `GET /v1/notaries`. A client learns of other enclaves
 * from the answers to its calls.
 */
export const NOTARIES_MAX = 64
