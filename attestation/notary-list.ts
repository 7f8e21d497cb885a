/**
 * Most notaries in the answer of `GET /v1/notaries`, and most that a client accepts. Clients find
 * further enclaves of a gateway when these answer.
 */
export const NOTARIES_MAX = 64
